"""One module a command: `bough NAME` is `cli/commands/NAME`, unless the table of `cli/main` names another."""
