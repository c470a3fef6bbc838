"""The choices: one file each, each citing its source, one folder a family; `policy_registry` finds them by name."""
