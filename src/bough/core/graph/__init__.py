"""Who waits for whom.

It offers `validation` and `submission` of what arrives, `dependencies`, `readiness`, and the `closure` of what is to
wait again.
"""
