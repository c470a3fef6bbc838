"""What waits for what.

It offers `validation` and `submission` of what arrives, `dependencies`, `readiness`, and the `closure` of what is to
wait again.
"""
