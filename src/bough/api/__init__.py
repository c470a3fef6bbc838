"""What users import: sessions, tasks, arrays, groups, sweeps."""
