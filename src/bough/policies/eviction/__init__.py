"""Which content a full cache gives up first: one policy a module, and their names in `eviction_names`."""
