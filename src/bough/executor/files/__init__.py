"""Files of tasks on a node.

The executor has them brought (`staging`) by a process of its own (`transfers`) into what the host and the site keep
(`caches`); the worker gives them to its command, and takes what that makes (`command_files`).
"""
