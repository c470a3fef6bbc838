"""Short texts that people write and read: `selectors` of tasks, `plurals`, and what a terminal may be shown."""
