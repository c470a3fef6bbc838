"""Contents on their way into the caches: from peers, the site's shared store, the server and URLs.

`transfer_client` is the executor's side of the process that does it (`transfer_process`), `transfer_protocol` what the
two say to each other. `peer_reader` reads from other hosts, over one connection or several (`peer_streams`), and
`range_plan` knows which bytes are there; `peer_server` serves others. `url_fetching` looks and reads at URLs.
"""
