"""What runs in a worker process.

It offers functions (`function_runner`), `commands`, their output and the way back to the executor.
"""
