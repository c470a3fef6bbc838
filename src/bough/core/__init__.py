"""The scheduler without I/O: told the time and the news, it returns what it wants done."""
