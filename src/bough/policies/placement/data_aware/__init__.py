"""Placement policies that look at where data is."""
