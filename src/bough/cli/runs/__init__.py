"""What `bough run` and `bough submit` do, and what they share.

`run_sessions` runs work under a display and sums up how it ended; `run_script`, `run_commands` and `submit_files` are
kinds of work, `run_in_task` opens their session, `command_texts` is how it is written, `profiles` the options that are
kept in a file.
"""
