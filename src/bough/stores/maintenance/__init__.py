"""Work on whole stores.

It offers `copies` (copy, back up, check), `repair`, and `replay`, which makes the machine of a run from a store.
"""
