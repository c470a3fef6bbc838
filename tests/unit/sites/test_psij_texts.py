"""Slurm, PBS and LSF as texts. Slurm's answers were recorded; those of PBS and LSF are as their manuals show them."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from bough.errors import SiteError, UnknownName, UserError
from bough.sites.batch.batch_system import (
    NAMES,
    BatchSystem,
    JobRequest,
    JobStatus,
    find_batch_system,
    is_full,
    is_passing,
    last_line,
)

SQUEUE = """JOBID               ST                  REASON              
12                  PD                  Resources           
13                  R                   None                
14                  CA                  None                
15                  F                   NonZeroExitCode     
16                  F                   RaisedSignal:53(Real-time_signal_19)
17                  PD                  launch failed requeued held
18                  XX                  SomethingNew        
"""  # noqa: W291 -- as squeue pads it
BJOBS = """{"COMMAND":"bjobs","JOBS":3,"RECORDS":[
 {"JOBID":"7","STAT":"RUN","EXIT_REASON":"","KILL_REASON":"","SUSPEND_REASON":""},
 {"JOBID":"8","STAT":"EXIT","EXIT_REASON":"TERM_OWNER: job killed by owner","KILL_REASON":"","SUSPEND_REASON":""},
 {"JOBID":"9","ERROR":"Job <9> is not found"}]}"""
QSTAT = """{"timestamp":1,"pbs_version":"2021","Jobs":{
 "41.head":{"Job_Name":"bough-abc-1","job_state":"Q"},
 "42.head":{"Job_Name":"other","job_state":"R"},
 "43.head":{"Job_Name":"bough-abc-2","job_state":"F","Exit_status":1,"comment":"Job run at node 3 and failed."}}}"""


def job(**changes: object) -> JobRequest:
    whole = JobRequest("bough-abc-1", "/home/me/p/1", "/home/me/p/1/start", 2, 7201, "main", "acc", {"qos": "debug"})
    return whole._replace(**changes)  # type: ignore[arg-type]


def system(name: str) -> BatchSystem:
    return find_batch_system(name)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "slurm",
            [
                *('#SBATCH --job-name="bough-abc-1"', "#SBATCH --cpus-per-task=2", "#SBATCH --time=2:1:0"),
                *('#SBATCH --partition="main"', '#SBATCH --account="acc"', '#SBATCH --qos="debug"'),
                *("#SBATCH --nodes=1", "#SBATCH --ntasks=1"),
            ],
        ),
        (
            "pbs",
            [
                *('#PBS -N "bough-abc-1"', "#PBS -l select=1:ncpus=2:mpiprocs=2", "#PBS -l walltime=2:1:0"),
                *("#PBS -q main", "#PBS -A acc"),
            ],
        ),
        (
            "lsf",
            [
                *('#BSUB -J "bough-abc-1"', "#BSUB -n 2", '#BSUB -R "span[hosts=1]"', "#BSUB -W 2:1"),
                *('#BSUB -q "main"', '#BSUB -P "acc"'),
            ],
        ),
    ],
)
def test_a_script_asks_for_what_the_site_says(name: str, lines: list[str]) -> None:
    written = system(name).script(job()).splitlines()
    assert [line for line in lines if line not in written] == []
    assert "exec /bin/bash /home/me/p/1/start " in written


def test_a_whole_node_is_asked_for_without_a_number_of_cores() -> None:
    assert "#SBATCH --exclusive" in system("slurm").script(job(cores=0))
    assert "exclhost" in system("pbs").script(job(cores=0))
    assert "#BSUB -x" in system("lsf").script(job(cores=0))


def test_a_folder_that_the_templates_cannot_quote_is_refused() -> None:
    with pytest.raises(SiteError, match="letters that a batch script cannot have"):
        system("slurm").script(job(folder="/home/a b"))


def test_no_thread_of_psij_runs() -> None:
    before = threading.active_count()
    for name in ("slurm", "pbs", "lsf"):
        system(name).script(job())
    assert threading.active_count() == before


def test_the_event_loop_is_still_told_of_processes_that_end() -> None:
    """PSI/J, imported by the main thread, takes the signal for itself: a server would wait for ever."""
    script = """
import asyncio, uvloop
from bough.sites.batch.batch_system import find_batch_system
async def main():
    first = await asyncio.create_subprocess_exec("sleep", "0.1")  # the loop has its handler before
    find_batch_system("slurm")
    second = await asyncio.create_subprocess_exec("true")
    async with asyncio.timeout(60):
        print(await first.wait(), await second.wait())
uvloop.run(main())
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (found.stdout, found.stderr) == ("0 0\n", "")


def test_what_squeue_says() -> None:
    found = system("slurm").read_statuses(0, SQUEUE, "")
    assert {number: status.alive for number, status in found.items()} == {
        **dict.fromkeys(("12", "13", "17", "18"), True),
        **dict.fromkeys(("14", "15", "16"), False),
    }
    assert found["14"].reason == "it was cancelled"
    assert found["15"].reason == "The job terminated with a non-zero exit code"
    assert found["16"].reason == "RaisedSignal:53(Real-time_signal_19)"
    assert system("slurm").read_statuses(0, "JOBID ST REASON\n", "") == {}
    with pytest.raises(ValueError, match="squeue"):
        system("slurm").read_statuses(1, "", "slurm_load_jobs error: Unable to contact slurm controller")


def test_what_bjobs_says() -> None:
    found = system("lsf").read_statuses(255, BJOBS, "Job <9> is not found")
    assert found == {"7": JobStatus(True), "8": JobStatus(False)}
    with pytest.raises(ValueError, match="255"):
        system("lsf").read_statuses(255, BJOBS.replace("is not found", "?"), "LSF is down. Please wait ...")
    assert system("lsf").read_names("7 bough-abc-1\n8 other name\n") == [("7", "bough-abc-1"), ("8", "other name")]
    assert system("lsf").read_names("No unfinished job found\n") == []


def test_what_qstat_of_pbs_says() -> None:
    found = system("pbs").read_statuses(153, QSTAT, "qstat: Unknown Job Id 44.head")
    assert [found[f"4{number}.head"].alive for number in (1, 2, 3)] == [True, True, False]
    assert found["43.head"].reason == "Job run at node 3 and failed"
    assert ("41.head", "bough-abc-1") in system("pbs").read_names(QSTAT)
    assert system("pbs").read_names("") == []
    assert system("pbs").read_statuses(0, '{"timestamp":1}', "") == {}
    with pytest.raises(ValueError):
        system("pbs").read_statuses(1, "", "Connection refused")


def test_the_number_of_a_job() -> None:
    assert system("slurm").job_id("Submitted batch job 77\n") == "77"
    assert system("pbs").job_id("77.head\n") == "77.head"
    assert system("lsf").job_id("Job <77> is submitted to queue <main>.\n") == "77"
    for name in ("slurm", "pbs", "lsf"):
        with pytest.raises(ValueError, match="no job number"):
            system(name).job_id("")


def test_several_jobs_are_asked_for_and_ended_in_one_command() -> None:
    assert system("slurm").cancel(["1", "2"]) == ["scancel", "-Q", "1", "2"]
    assert system("pbs").ask_statuses(["1", "2"])[-2:] == ["1", "2"]
    assert system("lsf").cancel(["1", "2"]) == ["bkill", "1", "2"]
    assert system("slurm").submit("/p/job") == ["sbatch", "/p/job"]
    assert system("lsf").by_stdin


def test_without_psij_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psij", None)
    with pytest.raises(UserError, match=r"pip install 'bough\[batch\]'"):
        system("slurm")


def test_an_unknown_batch_system_is_named_with_those_that_are_known() -> None:
    with pytest.raises(UnknownName, match=r"slurn.*slurm, pbs, lsf, sge, flux"):
        system("slurn")
    assert all(system(name).commands for name in NAMES)


@pytest.mark.parametrize(
    ("said", "passing"),
    [
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", True),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", True),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", True),
        ("LSF is down. Please wait ...", True),
        ("error: commlib error: got select error (Connection refused)", True),
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", False),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination", False),
        ("qsub: Unknown queue MSG=cannot locate queue", False),
    ],
)
def test_what_may_be_otherwise_in_a_moment(said: str, passing: bool) -> None:
    assert is_passing(said) is passing


@pytest.mark.parametrize(
    ("said", "full"),
    [
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", True),
        ("sbatch: error: Slurm job queue full, sleeping and retrying", True),
        (
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed",
            True,
        ),
        ("sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed", True),
        ("qsub: would exceed queue's per-user limit of jobs in 'Q' state", True),
        ("qsub: Maximum number of jobs already in queue", True),
        ("Unable to run job: job rejected: Only 5 jobs are allowed per user (current job count: 5)", True),
        ("Pending job threshold reached. Retrying in 60 seconds...", True),
        ("sbatch: error: AssocMaxCpuPerJobLimit\nsbatch: error: Batch job submission failed", False),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", False),
    ],
)
def test_that_no_more_jobs_are_taken(said: str, full: bool) -> None:
    assert is_full(said) is full


SINFO = """main* mix 3/5/0/8
main* idle 0/8/0/8
main* idle* 0/8/0/8
main* drain 0/0/8/8
main* idle~ 0/8/0/8
other idle 0/8/0/8
"""
WAITING = """main 3 1 Resources
main 16 2 Dependency
other,main 2 1 Priority
other 8 1 Priority
main 1 1 None
main 1 1 ReqNodeNotAvail, UnavailableNodes:a1
"""


def test_what_slurm_has_free() -> None:
    slurm = system("slurm")
    assert [words[0] for words in slurm.ask_room(job())] == ["sinfo", "squeue"]
    assert slurm.read_room([SINFO, ""], job()) == 2 + 4 + 4
    assert slurm.read_room([SINFO, WAITING], job()) == 10 - 2 - 1 - 1
    assert slurm.read_room([SINFO, ""], job(partition="")) == 10
    assert slurm.read_room([SINFO, ""], job(partition="other", cores=3)) == 2
    assert slurm.read_room([SINFO, WAITING], job(partition="other", cores=8)) == 0
    assert slurm.read_room([SINFO, ""], job(cores=0)) == 2  # whole nodes
    assert slurm.read_room(["", ""], job()) == 0
    assert not system("pbs").ask_room(job())
    for wrong in ("main* mix 3/x/0/8", "main* mix 3"):
        with pytest.raises((ValueError, LookupError)):
            slurm.read_room([wrong, ""], job())


def test_the_last_line_that_says_something() -> None:
    assert last_line("Unable to run job: no queue.\nExiting.\n\n") == "Unable to run job: no queue."
    assert last_line("") == ""
