"""What watches running tasks: a pure engine (bytes and times in, observations out) in one watcher process per executor.

From the inside out: `evaluation` has the engine, and does no I/O. `task_watch` feeds the engines of one task from files
(`followed_files`), functions (`custom_runner`) and programs (`executables`); `watcher` is the process. The executor's
side of it is `slots/watcher_client`.
"""
