"""The client's end of a connection.

It offers `connection`, who reads it (`reader`), what it gathers (`outbox`), what a loss means (`reconnect`).
"""
