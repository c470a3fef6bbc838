"""Submitting commands: one or a sweep (`commands`), and whole descriptions of them (`plans`).

`command_plan` makes of a text and its parameters what is sent; `declared_text` and `transfers` are the files that it
reads, writes, and takes along.
"""
