"""Makefiles.

It offers `makefile` makes a plan of one, `ask_make` is the only place where make runs, `make_database` reads what it
prints.
"""
