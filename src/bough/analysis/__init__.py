"""What a run was like, and could have been: minimal schedule, critical path, degree of concurrency, pictures.

Rule: works on what the jobs database says; nothing here starts, changes or waits for anything.
"""

from bough.analysis.run_report import Analysis, analyse

__all__ = ["Analysis", "analyse"]
