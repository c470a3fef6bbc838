"""What runs where next.

It offers  `placement` asks the policy, `view` is what it sees, `chaining` sends short successors along.
"""
