"""What a submission gives back.

It offers `task`, arrays and feeds, `completed` commands, and the `task_registry` that hears of their ends.
"""
