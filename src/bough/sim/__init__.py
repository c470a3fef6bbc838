"""The simulated shell around the core: the same machine and the same policies, on a clock of its own.

It offers: `simulation` drives a machine, `simulated_executor` runs tasks as a model says,
`simulated_site` brings executors by pilots, `schedule` says what ran
when, `studies` runs published experiments again.
"""
