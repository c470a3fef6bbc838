"""Files of tasks as the executor's loop has them: inputs brought before a task begins, outputs handed over after it.

`staging` answers the workers' requests (`staging_requests`), `url_inputs` those at URLs. `staged_outputs` offers what
tasks made to the server, and `output_collector` gathers what may come later. `declared_inputs` says what waiting tasks
will read, and `host_contents` opens the host's cache and the transfer process when files first travel.
"""
