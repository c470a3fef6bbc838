"""The shell text of a node: its PRE script, its jobs and its POST script as one command.

A retry of a node runs all of them again, which is what an attempt of a task does. What ran last decides (HTCondor
manual, "Node Success/Failure"): a PRE script that fails ends the node, a POST script overrules the jobs. A node without
scripts is the plain command of its job. Several jobs of a node that something must judge run one after the other; the
first that fails ends them. What is known only while it runs is asked for then: the retry, and, by `bough here counts`,
how the rest of the DAG fares. Rule: every word is quoted; a text means the same in every run.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from bough.describe.dagman.dag_file import DagNode, DagScript
from bough.describe.dagman.submit_description import SubmitJob, local_program, quote

ATTEMPT = "retry=$((${BOUGH_ATTEMPT:-1} - 1))"
_NOT_SUBMITTED = -1001  # what a POST script is told of a job whose submit description could not be used
_SKIPPED = -1004  # and of a job that a failed PRE script kept from running
_MOST_SIGNALS = 64
_OF_THE_DAG = frozenset(
    {"$DAG_STATUS", "$FAILED_COUNT", "$FUTILE_COUNT", "$DONE_COUNT", "$QUEUED_COUNT", "$NODE_COUNT", "$DAGID"}
)
_COUNTED = ("$dag_status", "$failed", "$futile", "$done", "$queued")


class Surroundings(NamedTuple):
    """What the command of a node must know of its DAG."""

    name: str  # of the node, with those of its splices
    base: str  # the folder of its scripts
    nodes: int  # of the whole DAG
    done: int  # of these, that are not run because they were done before
    always_post: bool = False
    jobs: int = 1
    cluster: int = 0  # the number of the node, which HTCondor would give to its jobs
    at_root: bool = False  # the command begins where the DAG was submitted, not in the folder of the scripts


class LateJob(NamedTuple):
    """Jobs whose submit description is read when the node is due."""

    question: str  # a command that prints their shell text


Job = SubmitJob | LateJob | str  # a text runs a sub-DAG


def is_judged(node: DagNode) -> bool:
    """Whether something decides about the node as a whole, so that it must be one task."""
    return bool(
        node.post is not None
        or node.unless is not None
        or node.abort is not None
        or (node.pre is not None and node.skip)
        or node.kind in ("FINAL", "PROVISIONER", "SERVICE")
    )


def asks_for_the_dag(node: DagNode) -> bool:
    """Whether a script of the node is told how its DAG fares: then that DAG must be a workflow of its own."""
    scripts = [script for script in (node.pre, node.post) if script is not None]
    return any(word.upper() in _OF_THE_DAG for script in scripts for word in script.words)


def command(node: DagNode, jobs: Sequence[Job], around: Surroundings) -> tuple[str, str]:
    """The text of a node's command, and the folder where it runs."""
    first = jobs[0]
    loop = _is_loop(node)
    if len(jobs) == 1 and node.pre is None and node.post is None and not loop:
        if isinstance(first, SubmitJob):
            return _with_state(first.text(), around, loop=False), first.folder
        return _with_state(_job(first, around), around, loop=False), "" if around.at_root else around.base
    body = _body(node, jobs, around)
    text = _with_state(_attempts(node, body) if loop else body, around, loop=loop)
    return text, "" if around.at_root else around.base


def late_text(node: DagNode, jobs: Sequence[SubmitJob], around: Surroundings) -> str:
    """What a late job's question is answered with: the text of its jobs, which the node's command runs."""
    text = " && ".join(f"( {_job(job, around)} )" for job in jobs)
    return _with_state(text or "true", around, loop=_is_loop(node))


def _is_loop(node: DagNode) -> bool:
    """Whether the command itself repeats what failed, because some exit code ends that."""
    return node.unless is not None or node.abort is not None


def _with_state(text: str, around: Surroundings, *, loop: bool) -> str:
    """A text with what its variables need before it."""
    lines = []
    if "$retry" in text and not loop:
        lines.append(ATTEMPT)
    if any(variable in text for variable in _COUNTED):
        lines.append(
            f'dag() {{ eval "$(bough here counts)"; done=$((done + {around.done}));'
            " futile=$((skipped + cancelled)); queued=$((running > 0 ? running - 1 : 0)); dag_status=0;"
            " if [ $failed != 0 ]; then dag_status=2; fi; if [ $aborted != 0 ]; then dag_status=3; fi; }; dag"
        )
    return "; ".join([*lines, text])


def _body(node: DagNode, jobs: Sequence[Job], around: Surroundings) -> str:
    """One attempt at a node; it ends with the exit code of what ran last."""
    lines: list[str] = []
    if node.pre is not None:
        lines.append(f"pre=0; {_script(node.pre, node, around, 'pre')} || pre=$?")
        if node.skip:
            lines.append(f"if [ $pre = {node.skip} ]; then exit 0; fi")
        if not (around.always_post and node.post is not None):
            lines.append("if [ $pre != 0 ]; then exit $pre; fi")
    elif node.post is not None:
        lines.append("pre=-1")
    texts = [f"( {_job(job, around)} )" for job in jobs]
    counted = any(variable in text for text in texts for variable in ("$dag_status", "$failed"))
    late = jobs[0] if isinstance(jobs[0], LateJob) and node.post is not None else None
    run = " && ".join(texts) if late is None else '( eval "$job" )'
    if node.post is None:
        lines.append(run)
        return "; ".join(lines)
    judged = (
        f"status=0; {'dag; ' if counted else ''}{run} || status=$?;"
        f" if [ $status -gt 128 ] && [ $status -le {128 + _MOST_SIGNALS} ]; then status=$((128 - status)); fi"
    )  # a signal is negative
    if late is not None:  # asked for apart, so that the POST script can tell a bad description from a bad job
        judged = f"if job=$({late.question}); then {judged}; else status={_NOT_SUBMITTED}; fi"
    if around.always_post and node.pre is not None:
        judged = f"if [ $pre != 0 ]; then status={_SKIPPED}; else {judged}; fi"
    lines.append(judged)
    post = _script(node.post, node, around, "post")
    lines.append(f"dag; {post}" if any(variable in post for variable in _COUNTED) else post)
    return "; ".join(lines)


def _attempts(node: DagNode, body: str) -> str:
    """All attempts at a node, for an exit code that ends them or the DAG."""
    ends = [] if node.unless is None else [f"[ $code = {_shell_code(node.unless)} ]"]
    abort = ""
    if node.abort is not None:
        code = _shell_code(node.abort[0])
        abort = f"if [ $code = {code} ]; then bough here cancel --all; exit $code; fi; "
    stop = " || ".join(["[ $code = 0 ]", *ends])
    return (
        f"for ((retry = 0; retry <= {node.retries}; retry++)); do code=0; ( {body} ) || code=$?; "
        f"{abort}if {stop}; then exit $code; fi; done; exit $code"
    )


def _shell_code(code: int) -> int:
    """An exit code as a shell tells it: a signal is negative to DAGMan, and above 128 to a shell."""
    return 128 - code if -_MOST_SIGNALS <= code < 0 else code


def _job(job: Job, around: Surroundings) -> str:
    if isinstance(job, str):
        return job
    if isinstance(job, LateJob):
        return f'job=$({job.question}) && eval "$job"'
    parts = [f"export {quote(f'{name}={value}')}" for name, value in job.environment.items()]
    if job.folder and (around.at_root or job.folder != around.base):
        parts.append(f"cd {shlex.quote(job.folder)}")
    return " && ".join([*parts, job.text()])


def _script(script: DagScript, node: DagNode, around: Surroundings, kind: str) -> str:
    """A script with its arguments, run again as long as it defers, and its output where DEBUG wants it."""
    values = {
        "$JOB": quote(around.name),
        "$NODE": quote(around.name),
        "$RETRY": '"$retry"',
        "$MAX_RETRIES": str(node.retries),
        "$DAG_STATUS": '"$dag_status"',
        "$FAILED_COUNT": '"$failed"',
        "$FUTILE_COUNT": '"$futile"',
        "$DONE_COUNT": '"$done"',
        "$QUEUED_COUNT": '"$queued"',
        "$NODE_COUNT": str(around.nodes),
        "$DAGID": '"${BOUGH_RUN:-0}"',
    }
    if kind == "post":
        values |= {
            "$RETURN": '"$status"',
            "$PRE_SCRIPT_RETURN": '"$pre"',
            "$JOBID": f"{around.cluster}.{around.jobs - 1}",
            "$CLUSTERID": str(around.cluster),
            "$JOB_COUNT": str(around.jobs),
            "$JOB_ABORT_COUNT": "0",
            "$SUCCESS": '"$(if [ $status = 0 ]; then echo True; else echo False; fi)"',
            "$EXIT_CODES": '"$status"',
            "$EXIT_CODE_COUNTS": '"$status:1"',
        }
    words = [quote(local_program(script.words[0], around.base))]
    words += [values.get(word.upper()) or quote(word) for word in script.words[1:]]  # an unknown one stays as it is
    text = " ".join(words)
    if script.debug is not None:
        path, stream = script.debug
        mark = {"STDOUT": ">>", "STDERR": "2>>", "ALL": "&>>"}[stream]
        text = f"{text} {mark} {quote(path)}"
    if around.at_root and around.base:
        text = f"( cd {shlex.quote(around.base)} && {text} )"
    if script.defer is not None:
        code, pause = script.defer
        text = f"( while true; do c=0; {text} || c=$?; if [ $c != {code} ]; then exit $c; fi; sleep {pause}; done )"
    return text
