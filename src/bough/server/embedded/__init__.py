"""The server of one script.

It offers `embedded_server` (from opening the run to its ordered end), `server_options` and `local_executor`. It never
loads `service` or `files`.
"""
