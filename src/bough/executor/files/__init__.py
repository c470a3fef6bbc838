"""Files of tasks on a node.

It offers `sandbox` (the folder of an attempt), `staging` (inputs brought, outputs handed over), `declared_outputs`.
"""
