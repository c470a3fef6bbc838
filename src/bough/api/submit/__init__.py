"""From a call of the user to a submission.

It offers the methods that submit (`submitter`, `groups`), their `task_options`, and what they do: `calls`, `arrays`,
`feeds`, and `command_lines`, which submits whole plans as well. `context` says what all of them ask of a session.
"""
