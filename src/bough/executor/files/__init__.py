"""Files of tasks on a node.

It offers `sandbox` (the folder of an attempt), `staging` (inputs brought, outputs handed over), `declared_outputs`, and
`host_cache` with what fills it: `transfer_client`, `transfer_process` and `peer_link`.
"""
