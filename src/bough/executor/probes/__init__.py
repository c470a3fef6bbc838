"""Answers to what remote monitors ask of tasks that run here: which task, helper processes, files.

Rule: nothing that can take long is done in the executor's loop.
"""
