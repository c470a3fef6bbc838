"""What runs on nodes: takes spans, runs commands and functions, reports."""
