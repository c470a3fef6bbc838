from __future__ import annotations

import pytest

from bough.describe.formats import Source, find_reader, left_out, read_json, write_json
from bough.describe.formats import read as read_form
from bough.describe.ourgrid_job import read, translate
from bough.describe.steps import steps
from bough.errors import BadValue, InvalidWorkload

JOB = """# BLAST over slices
job:
  label: blast
  requirements: ( os = linux && mem >= 512 || ! site == far )
  init: store db/slice.fa slice.fa
  remote: blastall -d $STORAGE/slice.fa -o hits.$TASK
  final: get hits.$TASK results/hits.$TASK
  check: test -s hits.$TASK

task:
  init:
    put q1.fa query.fa
    if (os == linux) then
      store tool.linux bin/tool
      if (arch == x86_64) then
        put a b
      endif
    else
      store tool.other bin/tool
    endif
task :
  init : none
  remote :
    echo one
    echo two
  final : none
  check : none
"""


def test_a_job_file_says_what_is_put_run_got_and_checked() -> None:
    plan = read(JOB, "blast.jdf")
    first, second = plan.root.tasks
    assert not plan.root.pipeline
    assert first.name == "blast.1"
    assert first.playpen
    assert first.retries == 2
    assert first.env == {"JOB": "1", "TASK": "1"}
    assert first.requires == "( os == 'linux' and memory_gb >= 0.5 or not site == 'far' )"
    assert first.transfers == [
        ("put", "q1.fa", "query.fa", ""),
        ("store", "tool.linux", "bin/tool", "os == 'linux'"),
        ("put", "a", "b", "(os == 'linux') and (arch == 'x86_64')"),
        ("store", "tool.other", "bin/tool", "not (os == 'linux')"),
        ("get", "results/hits.1", "hits.1", ""),
    ]
    assert "test -s hits.$TASK" in first.command
    assert second.transfers == []
    assert second.command == "echo one\necho two"
    assert len(steps(plan)) == 2


def test_it_is_known_by_its_name_or_its_first_line_and_comes_back_from_json() -> None:
    for path in ("blast.jdf", "blast", "-"):
        reader = find_reader(Source(path, JOB))
        assert reader is not None
        assert reader.form == "ourgrid"
    plan = read_form(Source("blast.jdf", JOB), find_reader(Source("blast.jdf", JOB)))
    again = read_json(write_json(plan), "plan.json")
    assert again.root.tasks[0].transfers == plan.root.tasks[0].transfers
    assert again.root.tasks[0].playpen
    assert "has no place for playpens: what 2 tasks put" in left_out(plan, "flat")
    assert left_out(plan, "json") == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no job:"),
        ("job:\n", "x.jdf:1: the job has no task:"),
        ("task:\n remote: x\n", "x.jdf:1: a job file begins with job:"),
        ("job:\njob:\n", "x.jdf:2: .* has it once"),
        ("job:\ntask:\n", "x.jdf:2: the task has no remote: command"),
        ("job:\ntask:\n remote: x\n remote: y\n", "x.jdf:4: remote: is there already"),
        ("job:\ntask:\n label: x\n remote: y\n", "x.jdf:3: label: is for the job"),
        ("job:\n nonsense\n", "x.jdf:2: 'nonsense' belongs to no section"),
        ("job:\ntask:\n remote: x\n init: get a b\n", "x.jdf:4: .* here stands put FROM TO or store FROM TO"),
        ("job:\ntask:\n remote: x\n final: put a b\n", "x.jdf:4: .* here stands get FROM TO"),
        ("job:\ntask:\n remote: x\n init: put a\n", "x.jdf:4: .* here stands put"),
        ("job:\ntask:\n remote: x\n init: put a ../b\n", "x.jdf:4: .* is no name of a file in a playpen"),
        ("job:\ntask:\n remote: x\n init: store a $STORAGE/../b\n", "x.jdf:4: .* is no name of a file in a playpen"),
        ("job:\ntask:\n remote: x\n init: put a /etc/passwd\n", "x.jdf:4: .* is no name of a file in a playpen"),
        ("job:\ntask:\n remote: x\n init: put $PROC b\n", "x.jdf:4: .* has no variables but"),
        (f"job:\ntask:\n remote: x\n init: put a {'x' * 10_000}\n", "x.jdf:4: .* no name of a file"),
        ("job:\ntask:\n remote: x\n init:\n if (os == a) then\n put a b\n", "x.jdf:6: an if has no endif"),
        ("job:\ntask:\n remote: x\n init:\n endif\n", "x.jdf:5: endif has no if"),
        ("job:\ntask:\n remote: x\n init:\n if os then\n", "x.jdf:5: a condition is written as"),
        ("job:\n requirements: (os ==\ntask:\n remote: x\n", "x.jdf:2: "),
        ("job:\ntask:\n remote: a\0b\n", "x.jdf:3: a job file is plain text"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, why: str) -> None:
    with pytest.raises(InvalidWorkload, match=why):
        read(text, "x.jdf")


def test_requirements_are_translated() -> None:
    assert translate("os == linux and not (mem < 2048)") == "os == 'linux' and not ( memory_gb < 2.0 )"
    assert translate('site != "Far Away"') == "site != 'Far Away'"
    for wrong in ("os ==", "== 3", "a b", "(os", "__import__('os')"):
        with pytest.raises((BadValue, ValueError)):
            translate(wrong)
