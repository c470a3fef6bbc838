"""What the core remembers: tasks, arrays, groups, executors, attempts, locks, sites, queues and populations.

The `indexes` over them have a room of their own.
"""
