"""Whether work was done before.

It offers `content_keys` (keys of calls, commands and files). They are made of `digests` of values and code, and of
`function_code`.
"""
