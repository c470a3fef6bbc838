"""A relay: lets executors that reach only this machine speak to their server, all over one connection.

Rule: a relay passes on bytes and understands none of them; who is behind it is the server's business.
"""
