"""The live shell around the core: connections, durability, executors."""
