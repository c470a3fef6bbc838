"""DAGMan's files: `dag_file` reads the lines, `submit_description` the jobs, `dag_plan` makes a plan."""
