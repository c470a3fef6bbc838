"""Whether work was done before: `digests` of values and code, `content_keys` of calls, commands and files."""
