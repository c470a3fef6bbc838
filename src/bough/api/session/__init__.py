"""Sessions: what users open.

It offers `session` (class `Session`), `launch` (defaults of a run; the server of an embedded session) and `shutdown`
(how sessions end). `remote` is the host of a service's session, `rejoin` finds what a workflow holds already.
"""
