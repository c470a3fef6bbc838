"""What `bough run` and `bough submit` do, and what they share.

`run_sessions` runs work under a display and sums up how it ended; `run_script`, `run_commands` and `submit_files` are
kinds of work, `command_texts` how it is written, `profiles` the options that are kept in a file.
"""
