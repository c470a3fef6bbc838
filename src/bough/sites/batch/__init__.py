"""Sites with a batch system: the kind, and one module for each way to speak to batch systems."""
