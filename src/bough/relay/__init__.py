"""A relay: lets executors that reach only this machine work for a server elsewhere, all over one connection.

One that forwards passes on bytes and understands none of them. One that shares out work lets executors in itself and
is to the server one wide executor. Rule: the server stays the only authority; a relay decides no retry, knows no
dependency and keeps nothing on disk.
"""
