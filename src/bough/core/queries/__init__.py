"""The only window into the core's state.

It offers `Queries`, the read-only questions (`facade`), and the frozen values that answer them (`answers`). The server
and other packages import these and `core.machine`, and nothing else of the core.
"""
