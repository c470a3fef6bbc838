"""Commands in a worker: `command_runner` starts them, and `command_wait` waits for them and hears of their end.

`command_failures` says why one failed; `beside_thread` does what takes long and may be stopped.
"""
