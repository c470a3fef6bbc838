"""What runs on nodes: an executor takes spans from a server, runs them in worker processes, and reports how they ended.

`python -m bough.executor` runs one (`loop`). `slots/` hands spans to workers, `worker/` is what a forked worker does,
`files/` what brings and keeps its files, `monitors/` what watches it, and `host/` what is there to run it on.
"""
