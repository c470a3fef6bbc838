"""Scripts run as `__main__`, as Python itself would run them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bough.cli.runs.run_script import run_script
from bough.errors import UserError


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]  # a script imported it from its folder


def write(folder: Path, text: str) -> str:
    path = folder / "wf.py"
    path.write_text(text)
    return str(path)


def test_a_script_sees_its_own_arguments_folder_and_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "beside.py").write_text("value = 7\n")
    path = write(
        tmp_path,
        "import sys, beside\nimport __main__\ndef f(): pass\n"
        "print(__name__, sys.argv[1:], beside.value, __main__.f is f, f.__module__, __file__ == sys.argv[0])\n",
    )
    assert run_script(path, ["--x", "1"]) == 0
    assert capsys.readouterr().out == "__main__ ['--x', '1'] 7 True __main__ True\n"


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [("raise SystemExit", 0, ""), ("sys.exit(5)", 5, ""), ("sys.exit('stop here')", 1, "stop here\n")],
)
def test_the_exit_code_of_a_script_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], statement: str, code: int, said: str
) -> None:
    assert run_script(write(tmp_path, f"import sys\n{statement}\n"), []) == code
    assert capsys.readouterr().err == said


def test_an_exception_is_printed_as_python_does_without_our_frames(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, "def f():\n    raise KeyError('x')\nf()\n")
    assert run_script(path, []) == 1
    err = capsys.readouterr().err
    assert err.startswith(f'Traceback (most recent call last):\n  File "{path}", line 3, in <module>\n    f()\n')
    assert err.endswith("KeyError: 'x'\n")
    assert "script.py" not in err


def test_a_syntax_error_shows_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "x = (\n")
    assert run_script(path, []) == 1
    err = capsys.readouterr().err
    assert err.startswith(f'  File "{path}", line 1\n')
    assert "SyntaxError" in err


def test_an_error_of_ours_that_the_script_let_through_names_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "import bough.errors\n\nraise bough.errors.UnknownName('no policy x')\n")
    with pytest.raises(UserError) as caught:
        run_script(path, [])
    assert str(caught.value) == f"{path}:3: no policy x"


def test_a_failed_task_that_the_script_let_through_is_an_exception_like_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_script(write(tmp_path, "import bough.errors\nraise bough.errors.TaskFailed('boom')\n"), []) == 1
    assert "TaskFailed: boom" in capsys.readouterr().err


def test_ctrl_c_passes_through(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_script(write(tmp_path, "raise KeyboardInterrupt\n"), [])
