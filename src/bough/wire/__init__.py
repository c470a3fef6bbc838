"""What processes say to each other: messages and frames, without sockets.

One module for each conversation: `client_messages`, `executor_messages`, `file_messages`, `relay_channels`, and the
questions of clients and tasks (`questions`). `framing` makes bytes of messages, `handshake` proves a role.
"""
