"""One turn of the core and what goes with it.

It offers `shell` runs turns and carries out orders, `dispatch` sends spans, `turn_messages` tells clients.
"""
