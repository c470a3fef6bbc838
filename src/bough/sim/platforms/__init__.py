"""What a simulation runs on, as a `platform` says it: hosts, links, and sites with their queues.

`simulated_executor` and `simulated_site` act as real ones do; `network` shares links; `availability_traces` and
`batch_waits` say how much of it there is, and when.
"""
