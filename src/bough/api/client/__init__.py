"""The client's end of a connection to a server.

It offers `connection` (submissions, questions, answers). A connection has a `reader`, an `outbox`, a `client_socket`
and a strategy of `reconnect`.
"""
