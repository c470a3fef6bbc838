"""The files that tasks declare, as the core knows them.

It offers `declared_files`: the table of a workflow's files, by id and by path.
"""
