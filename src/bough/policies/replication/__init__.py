"""Which running tasks get another attempt beside them, when executors would idle."""
