"""Big values of a session: buffers of arguments that calls share, handles of shared values, what they count as in keys.

It offers `ArgumentValues` (the buffers, each written once), `Packing` (one submission), `Shared` (`s.share`).
"""
