"""The command line: one file a command in `commands`; `runs` and `targets` are what several of them share."""
