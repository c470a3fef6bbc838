"""Where the journal, the memos and the jobs database are kept.

It offers `open` (opens, locks or reads the store that a user named), `store` (what a store promises), `store_lock`,
`store_folder`, `store_errors`, `contents` (files by content) and three sub-packages: `sql` (stores in SQLite and
PostgreSQL), `jobs` (the jobs database, folded from the journal) and `maintenance` (copy, check, repair, replay).
"""
