"""A relay: lets executors that reach only this machine work for a server elsewhere, all over one connection.

`relay_process` runs it, as `bough relay start` asks. One that forwards (`forward`) passes on bytes and understands
none of them. One that shares out work (`share_work`) lets executors in itself and is to the server one executor for
each kind of them. Rule: the server stays the only authority; a relay decides no retry, knows no dependency and keeps
nothing on disk.
"""
