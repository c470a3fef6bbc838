"""Where tasks may run, and when.

It offers what a task needs and an executor has (`resources`, `requirements`), the definitions of sites and of named
queues (`site_specs`, `queue_specs`), when a site may be used (`availability`) and when an executor is left alone
(`suspension`).
"""
