"""One turn of the core and what belongs to it.

`shell` runs turns and carries out orders, `dispatch` sends spans, `turn_messages` tells clients, `memo_lookups` finds
earlier successes, `background` syncs and folds.
"""
