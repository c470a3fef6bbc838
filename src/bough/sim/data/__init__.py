"""Data in simulated runs: caches, links and the transfers between them.

It offers `simulated_data`, which brings the inputs of attempts and keeps their outputs; `topology`, the links of a
platform; `simulated_store`, a cache that evicts; and `measured_attempts`, what was measured.
"""
