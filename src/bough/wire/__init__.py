"""What processes say to each other: messages and frames, without sockets."""
