"""Files of tasks, at a service.

`file_requests` speaks the protocol, `file_permissions` decides what a peer may have and leave, `stored_files` keeps the
bytes. `known_inputs` says what files hold, `peer_sources` who serves them, `url_contents` what is at URLs.
"""
