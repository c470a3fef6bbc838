"""Placement policies of the literature that others are measured against."""
