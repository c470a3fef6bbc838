"""What the host of an executor has and does: its devices and capacity, processes, descriptors, room on disk.

It knows of no task and of no server.
"""
