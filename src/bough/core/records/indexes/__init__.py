"""Indexes over the records, kept up to date with every change, so that nobody walks over all of them.

Of what is ready: `ready_queue`, `fair_index`, `affinity_index` with `outdone` and `announcements`. Of what runs:
`replicas` and `watch_index`. Of executors: `room_index`.
"""
