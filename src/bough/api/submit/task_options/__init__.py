"""What is said of a task when it is submitted, read once: `options`, checkpoints, monitors.

`never` refuses what can run nowhere.
"""
