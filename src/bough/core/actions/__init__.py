"""What people ask for.

It offers cancel, kill, hold, retry and kin (`task_actions`), `reset`, `amend`, and what these would do (`dry_run`).
"""
