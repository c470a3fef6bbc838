"""Files of tasks, at a service.

`file_requests` speaks the protocol, `file_permissions` decides what a peer may have and leave, `stored_files` keeps the
bytes.
"""
