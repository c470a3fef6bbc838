"""The interface between the core and the choices it is given.

It offers: `interface` has `View`, the wishes, a protocol a family, and `Policies`; `list_scheduling` is what policies
that place in the order of the queue share.
"""
