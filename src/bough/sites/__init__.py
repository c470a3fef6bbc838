"""Where executors come from: one module a kind of site, and what they share.

Rule: a kind knows how pilots are started, looked at and ended at one site, and nothing of the core or the server.
"""
