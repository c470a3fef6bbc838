"""Files of tasks on a node.

It offers `sandbox` (the folder of an attempt), `staging` (inputs brought, outputs handed over), `declared_outputs`,
`url_files` (what lies at URLs), `playpen` (files put, stored and got), `host_folders` (what stays on the host), and
`host_cache` with what fills it: `transfer_client`, `transfer_process` and `peer_link`.
"""
