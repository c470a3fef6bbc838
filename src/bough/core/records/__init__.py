"""What the core remembers: tasks, arrays, groups, executors, attempts, locks, and the queues of what is ready."""
