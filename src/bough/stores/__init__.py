"""Where the journal, the memos and the jobs database are kept.

It offers `open` (opens, locks or reads the store that a user named), `store` (what a store promises), `store_errors`,
and four sub-packages: `sql` (stores in SQLite and PostgreSQL), `folder` (what lies beside the database), `jobs` (the
jobs database, folded from the journal) and `maintenance` (copy, check, repair, replay).
"""
