"""Which ready task goes to which executor."""
