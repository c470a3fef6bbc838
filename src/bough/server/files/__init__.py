"""Files of tasks and their output at a server: `file_requests` (the protocol), `file_permissions`, `task_output`."""
