"""What people see while a session works.

It offers `progress_display` (pictures and plain lines), `script_progress` (when and where a plain script or a notebook
shows them), `echo` (what tasks print, as it comes), `output_lines` (lines with a task's name before them) and
`surroundings` (terminal, notebook, colours). Rule: nothing here is loaded by a session that shows nothing.
"""
