"""The sites of a service: whether they may be used (`site_watch`), their pilots, and what they have used.

`pilot_manager` keeps the pilots that the core wants, `pilot_submission` gives them to a site, `stranger_gates` lets in
who comes from there, and `usage_history` notes the core-hours.
"""
