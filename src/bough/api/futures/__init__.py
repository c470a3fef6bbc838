"""What a submission gives back.

It offers `task`, `array` and `array_view`, `completed` (what a command left), `progress`, and the `task_registry`
that passes on what the server says of tasks.
"""
