"""Contents that stay: in the cache of a host (`host_cache`), and in the shared folder of a site (`shared_store`).

`url_marks` says which of the host's were found at URLs. It knows of no task and of no server.
"""
