"""What a plan makes of what it is told of a task: bytes and times in, observations and actions out.

`line_reader`, `line_pattern`, `plateau_window` and `thinning` are the parts; `conditions` and `engine` make a plan of
them. Rule: none of these does any I/O or has a clock.
"""
