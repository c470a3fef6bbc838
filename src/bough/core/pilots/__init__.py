"""Where executors come from: what is decided of `pilots`, `sites` and `named_queues` is applied here."""
