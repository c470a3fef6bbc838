"""Indexes over the records, kept up to date with every change, so that nobody walks over all of them.

Of what is ready: `ready_queue` and `fair_index`; by data `affinity_index` with `waiting_units`, `data_places`,
`outdone`, `placed_inputs` and `announcements`. Of what runs: `replicas` and `watch_index`. Of executors: `room_index`,
`roomy_executors` and `arrivals`.
"""
