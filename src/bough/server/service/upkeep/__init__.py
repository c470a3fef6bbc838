"""What a service does beside its work, so that it can run for months.

It counts (`metrics`, `prometheus_text`, `cache_counts`), tells its operators (`notices`), removes what is old
(`retention`), forgets what has finished (`finished_workflows`), gives memory back (`memory_use`), and ends when it was
started for one session (`idle_end`).
"""
