"""Grid Engine and Flux as texts of our own. Grid Engine's answers were recorded, Flux's are from its manual."""

from __future__ import annotations

import pytest

from bough.errors import UserError
from bough.sites.batch.batch_system import JobRequest, JobStatus
from bough.sites.batch.flux_texts import Flux
from bough.sites.batch.grid_engine import GridEngine

QSTAT = """<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
    <job_list state="running">
      <JB_job_number>1</JB_job_number><JB_name>bough-abcdef012345-1</JB_name><state>r</state>
    </job_list>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>2</JB_job_number><JB_name>bough-abcdef012345-2</JB_name><state>qw</state>
    </job_list>
    <job_list state="pending">
      <JB_job_number>3</JB_job_number><JB_name>other</JB_name><state>Eqw</state>
    </job_list>
  </job_info>
</job_info>
"""
QUEUES = """<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
    <Queue-List>
      <name>main.q@one</name><slots_used>3</slots_used><slots_resv>0</slots_resv><slots_total>8</slots_total>
      <job_list state="running"><JB_job_number>1</JB_job_number><state>r</state><slots>3</slots></job_list>
    </Queue-List>
    <Queue-List>
      <name>main.q@two</name><slots_used>0</slots_used><slots_resv>1</slots_resv><slots_total>8</slots_total>
    </Queue-List>
    <Queue-List>
      <name>main.q@gone</name><slots_used>0</slots_used><slots_resv>0</slots_resv><slots_total>8</slots_total>
      <state>au</state>
    </Queue-List>
    <Queue-List>
      <name>other.q@one</name><slots_used>0</slots_used><slots_resv>0</slots_resv><slots_total>8</slots_total>
    </Queue-List>
  </queue_info>
  <job_info>
    <job_list state="pending"><JB_job_number>2</JB_job_number><state>qw</state><slots>3</slots></job_list>
    <job_list state="pending"><JB_job_number>3</JB_job_number><state>hqw</state><slots>9</slots></job_list>
  </job_info>
</job_info>
"""
JOB = JobRequest(
    "bough-abc-1", "/home/me/p/1", "/home/me/p/1/start", 2, 7200, "main.q", "proj", {"pe": "mp", "l": "a=1"}
)


def test_a_script_of_grid_engine() -> None:
    written = GridEngine().script(JOB).splitlines()
    for line in ("-N bough-abc-1", "-pe mp 2", "-q main.q", "-P proj", "-l h_rt=7200", "-l a=1"):
        assert f"#$ {line}" in written
    assert "#$ -pe smp 2" in GridEngine().script(JOB._replace(options={}))
    assert "-pe" not in GridEngine().script(JOB._replace(cores=1))
    with pytest.raises(UserError, match="--cores-per-pilot"):
        GridEngine().script(JOB._replace(cores=0))


def test_what_qstat_says() -> None:
    system = GridEngine()
    found = system.read_statuses(0, QSTAT, "")
    assert found == {"1": JobStatus(True), "2": JobStatus(True), "3": JobStatus(False, "Grid Engine says Eqw")}
    assert system.read_names(QSTAT)[0] == ("1", "bough-abcdef012345-1")
    for code, out in ((1, QSTAT), (0, "error: commlib error")):
        with pytest.raises(ValueError):
            system.read_statuses(code, out, "commlib error")


def test_what_grid_engine_has_free() -> None:
    system = GridEngine()
    assert system.read_room([QUEUES], JOB) == 2 + 3 - 2  # of two slots each; the job that waits takes two of these
    assert system.read_room([QUEUES], JOB._replace(cores=1, partition="")) == 5 + 7 + 8 - 3
    assert system.read_room([QUEUES], JOB._replace(cores=8)) == 0
    with pytest.raises(ValueError):
        system.read_room(["error: commlib error"], JOB)
    assert not Flux().ask_room(JOB)


def test_the_number_of_a_job_of_grid_engine() -> None:
    assert GridEngine().job_id('Your job 12 ("bough-abc-1") has been submitted\n') == "12"
    with pytest.raises(ValueError):
        GridEngine().job_id("")


def test_a_script_of_flux() -> None:
    written = Flux().script(JOB).splitlines()
    for line in ("--job-name=bough-abc-1", "--time-limit=7200s", "--queue=main.q", "--bank=proj", "--cores-per-slot=2"):
        assert f"# flux: {line}" in written
    assert written[-1] == "exec /bin/bash /home/me/p/1/start"
    assert "# flux: --exclusive" in Flux().script(JOB._replace(cores=0))


def test_what_flux_says() -> None:
    system = Flux()
    found = system.read_statuses(
        1, "f1A RUN\nf1B SCHED\nf1C INACTIVE CANCELED\n", "flux-jobs: ERROR: JobID f1D unknown"
    )
    assert {number: status.alive for number, status in found.items()} == {"f1A": True, "f1B": True, "f1C": False}
    assert found["f1C"].reason == "flux says canceled"
    assert system.read_names("f1A bough-abc-1\n") == [("f1A", "bough-abc-1")]
    assert system.job_id("f1A\n") == "f1A"
    for do in (lambda: system.job_id(""), lambda: system.read_statuses(1, "", "flux-jobs: ERROR: no broker")):
        with pytest.raises(ValueError):
            do()
