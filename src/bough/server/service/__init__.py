"""The server that outlives scripts.

It offers `service` and what only a service has, such as many workflows, roles, relays, manual tasks, notices,
metrics, retention.
"""
