"""Workflow files in and out."""
