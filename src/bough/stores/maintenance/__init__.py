"""What keeps a store in order.

It offers `copies` (copy, back up, check), `removal`, `quarantine`, `repair`, and `replay` after a crash.
"""
