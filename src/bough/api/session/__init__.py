"""`session` is what users open.

It offers `launch` starts its server, `remote` speaks to a service, `rejoin` finds what a workflow holds already,
`shutdown` ends in order.
"""
