"""Command lines.

It offers `command` (what one is, how it reads), `template` (texts with slots), `rendering` (a row of values filled
in), `shell_text`.
"""
