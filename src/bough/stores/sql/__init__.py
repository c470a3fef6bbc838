"""Stores in SQL databases.

It offers `sqlite` (the default), `postgres` with its connection (`pg_database`) and its reader of the jobs database
(`pg_jobs_reader`), and what both stores share (`sql_store`).
"""
