"""From a span that arrived to its end, on the side of the executor.

`backlog` queues spans, `slots` hands them to workers, of which `slot` is one; `preloader` forks them, `dead_workers`
says what their death means. `watcher_client` and `verdicts` say what monitors make of running tasks, `state_saving` and
`clearance` how tasks are made to leave.
"""
