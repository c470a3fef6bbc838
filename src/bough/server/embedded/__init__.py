"""The server of one script.

It offers `embedded_server` from opening the run to its ordered end, its options, its executor. It never loads
`service`.
"""
