"""Files of a command as its worker has them: where it runs, what it reads there, and what it leaves.

It runs in its submitter's directory, in a `sandbox`, or in a `playpen`; `host_folders` stay when it has ended.
`missing_inputs` and `url_files` put what it reads into place, `declared_outputs` shows what it wrote once it succeeds.
"""
