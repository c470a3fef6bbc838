"""Files of tasks and what tasks wrote, at a service.

`file_requests` speaks the protocol, `file_permissions` decides what a peer may have and leave, `stored_files` keeps the
bytes; `task_output` reads what tasks wrote to stdout and stderr.
"""
