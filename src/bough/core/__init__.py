"""The scheduler without I/O: offers `machine` (turns, replays, snapshots) and `queries` (questions), nothing else."""
