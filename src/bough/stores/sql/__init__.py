"""Stores in SQL databases.

It offers `sqlite` (the default), `postgres`, what both share (`sql_store`, `schema`) and the little SQL they have in
common (`database`).
"""
