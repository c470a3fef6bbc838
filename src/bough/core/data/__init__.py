"""The files that tasks declare, and where their contents are, as the core knows them.

It offers `declared_files`, the table of a workflow's files, by id and by path; and `data_index`, which hosts hold which
contents.
"""
