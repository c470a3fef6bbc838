"""How peers on other machines are reached and trusted: certificates, tokens, access files, TLS, dialling.

Rule: nothing secret is written but in files of mode 0600, nothing is said before the server's
certificate is known to be the pinned one, and nothing heavy is imported before it is needed.
"""
