"""The choices: one file each, each citing its source."""
