"""The server that outlives scripts.

It offers `service`, and what only a service has: many workflows and their clients, roles, relays, executors that
reconnect, manual tasks, notices, metrics, retention, SQL for remote clients.
"""
