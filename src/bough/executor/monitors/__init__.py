"""What watches running tasks: a pure engine (bytes and times in, observations out) in one watcher process per executor.

From the inside out: `line_reader`, `line_pattern`, `plateau_window` and `thinning` are the parts, `conditions` and
`engine` make a plan of them; none of these does any I/O. `task_watch` feeds the engines of one task from files
(`followed_files`), functions (`custom_runner`) and programs (`executables`); `watcher` is the process, `watcher_client`
the executor's side of it. Only the executor's side is imported by an executor that watches nothing.
"""
