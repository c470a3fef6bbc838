"""Sites that are clusters of other engines, Dask and Ray: their executors run beside those engines' workers."""
