"""How many pilots are asked for, and where."""
