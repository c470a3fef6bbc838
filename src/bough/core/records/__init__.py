"""What the core remembers of one thing: tasks, arrays, groups, executors, attempts, and the queues of what is ready."""
