"""The simulated shell around the core: a heap of events and executors of fixed speed."""
