"""The server that outlives scripts.

It offers `service`, and what only a service has: many workflows and their clients, roles, relays, executors that
reconnect, manual tasks, SQL for remote clients; in rooms of their own `sites` with their pilots, and `upkeep`: notices,
metrics, retention.
"""
