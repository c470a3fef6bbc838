"""One node of a DAGMan file as one command: its PRE script, its job and its POST script, and its retries.

A retry of a node runs all three again, which is what an attempt of a task does. What ran last decides (HTCondor
manual, "Node Success/Failure"): a PRE script that fails ends the node, a POST script overrules the job. Rule: a node
without scripts is the plain command of its job.
"""

from __future__ import annotations

import shlex

from bough.describe.condorsubmit import Job, quote
from bough.describe.dagfile import Node, Script

_UNKNOWN = ("$DAG_STATUS", "$FAILED_COUNT", "$DAGID")
_ATTEMPT = "retry=$((${BOUGH_ATTEMPT:-1} - 1))"


def command(node: Node, name: str, job: Job, base: str) -> tuple[str, str]:
    """The text of a node's command, and the folder where it runs."""
    text = "true" if node.noop else job.text()
    if node.pre is None and node.post is None and node.unless is None:
        return (f"{_ATTEMPT}; {text}" if "$retry" in text else text), job.folder
    if job.folder != base:
        text = f"cd {shlex.quote(job.folder)} && {text}"
    lines = []
    if node.pre is not None:
        lines.append(f"pre=0; {_script(node.pre, node, name)} || pre=$?")
        if node.skip:
            lines.append(f"if [ $pre = {node.skip} ]; then exit 0; fi")
        lines.append("if [ $pre != 0 ]; then exit $pre; fi")
    elif node.post is not None:
        lines.append("pre=0")
    if node.post is None:
        lines.append(f"( {text} )")
    else:
        lines.append(f"status=0; ( {text} ) || status=$?")
        lines.append("if [ $status -gt 128 ]; then status=$((128 - status)); fi")  # it was ended by a signal
        lines.append(_script(node.post, node, name))
    body = "; ".join(lines)
    if node.unless is None:
        return (f"{_ATTEMPT}; {body}" if "$retry" in body else body), base
    return (
        f"for ((retry = 0; retry <= {node.retries}; retry++)); do code=0; ( {body} ) || code=$?; "
        f"if [ $code = 0 ] || [ $code = {node.unless} ]; then exit $code; fi; done; exit $code"
    ), base


def _script(script: Script, node: Node, name: str) -> str:
    values = {
        "$JOB": quote(name),
        "$RETRY": '"$retry"',
        "$MAX_RETRIES": str(node.retries),
        "$RETURN": '"$status"',
        "$PRE_SCRIPT_RETURN": '"$pre"',
        "$JOBID": '"$BOUGH_TASK"',
    }
    words = [quote(script.words[0])]
    for word in script.words[1:]:
        if word.upper() in _UNKNOWN:
            raise script.where.wrong(f"{word} is not known to a script here; it knows {', '.join(values)}")
        words.append(values.get(word.upper()) or quote(word))
    return " ".join(words)
