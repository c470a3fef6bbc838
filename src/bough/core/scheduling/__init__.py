"""What runs where next.

It offers: `placement` asks the policy and carries out its wishes, `view` is what a policy sees, `chaining` sends short
successors along with what they wait for.
"""
