"""Flat lists: what a line may say, in which order tasks come, and which line an error names."""

from __future__ import annotations

import re
import time

import pytest

from bough.describe.flat_list import FlatTask, flat_steps, read, write
from bough.describe.steps import For
from bough.errors import InvalidWorkload


def commands(text: str) -> list[str]:
    return [task.command for task in read(text, "list.txt")]


def error_of(text: str) -> str:
    with pytest.raises(InvalidWorkload) as caught:
        read(text, "list.txt")
    return str(caught.value)


def test_a_line_is_a_command_and_stands_as_it_is_written() -> None:
    assert commands("echo {a} $b 'c  d'\nawk '{print $1}' x | sort\n") == [
        "echo {a} $b 'c  d'",
        "awk '{print $1}' x | sort",
    ]


def test_blank_lines_and_whole_line_comments_are_skipped() -> None:
    assert commands("\n  \n# one\n   # two\necho a # not a comment of ours\n") == ["echo a # not a comment of ours"]


def test_an_empty_text_has_no_tasks() -> None:
    assert read("", "list.txt") == []


def test_a_backslash_joins_the_next_line_and_the_first_line_counts() -> None:
    [task] = read("\necho a \\\n  b\\\nc\n", "list.txt")
    assert task.command == "echo a   bc"
    assert task.line == 2


def test_a_comment_is_not_continued() -> None:
    assert commands("# a comment \\\necho b\n") == ["echo b"]


def test_escaped_backslashes_at_the_end_join_nothing() -> None:
    assert commands("echo a\\\\\necho b\n") == ["echo a\\\\", "echo b"]


def test_lines_may_end_as_on_windows() -> None:
    assert commands("echo a\r\necho b \\\r\n c\r\n") == ["echo a", "echo b  c"]


def test_a_backslash_at_the_very_end_is_an_error() -> None:
    assert error_of("echo a\necho b \\") == "list.txt:2: the last line ends with a backslash and nothing follows it"


def test_blanks_after_the_last_backslash_are_an_error() -> None:
    assert error_of("echo b \\  \nc") == "list.txt:1: blanks follow the backslash that ends the line; remove them"


def test_a_prefix_names_a_task_and_says_what_it_needs() -> None:
    text = "a: :: true\nplot: after=a cores=2 memory=4GB timeout=1h retries=2 :: plot x\n"
    assert read(text, "list.txt")[1] == FlatTask(
        "plot x", "plot", ("a",), cores=2, memory=4_000_000_000, timeout=3600, retries=2, line=2
    )


def test_options_need_no_name_and_an_empty_prefix_is_allowed() -> None:
    first, second = read("cores=0.5 :: echo a\n:: echo a :: b\n", "list.txt")
    assert (first.cores, first.command) == (0.5, "echo a")
    assert second.command == "echo a :: b"


@pytest.mark.parametrize("line", ["echo a :: b", "perl -MA::B -e 1", "cargo test a::b", "std::run x"])
def test_two_colons_inside_a_command_are_the_commands_own(line: str) -> None:
    assert commands(line) == [line]


def test_names_may_be_used_before_their_line_and_tasks_waited_for_come_first() -> None:
    tasks = read("c: after=b :: 3\nb: after=a :: 2\na: :: 1\nd: :: 4\n", "list.txt")
    assert [task.name for task in tasks] == ["a", "b", "c", "d"]


def test_a_list_in_order_keeps_its_order() -> None:
    tasks = read("a: :: 1\nplain\nb: after=a :: 2\nc: after=a,b :: 3\n", "list.txt")
    assert [task.line for task in tasks] == [1, 2, 3, 4]


def test_a_cycle_is_named_with_its_lines() -> None:
    text = "x: after=a :: 0\na: after=b :: 1\nb: after=a :: 2\n"
    assert error_of(text) == "list.txt:2: these tasks wait for each other: a -> b -> a (lines 2 -> 3 -> 2)"


def test_a_task_that_waits_for_itself_is_a_cycle() -> None:
    assert error_of("a: after=a :: 1") == "list.txt:1: these tasks wait for each other: a -> a (lines 1 -> 1)"


def test_a_long_chain_written_backwards_is_no_problem() -> None:
    count = 20_000
    text = "".join(f"t{i}: after=t{i + 1} :: true\n" for i in range(count)) + f"t{count}: :: true\n"
    assert [task.name for task in read(text, "list.txt")] == [f"t{i}" for i in range(count, -1, -1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: :: 1\na: :: 2", "list.txt:2: the name 'a' is taken by line 1"),
        ("a: after=b :: 1", "list.txt:1: after=b: no line has the name 'b'"),
        ("a: colour=red :: 1", "list.txt:1: 'colour=red' is not one of the options"),
        ("a: cores 2 :: 1", "list.txt:1: 'cores' is not one of the options"),
        ("a: cores=two :: 1", "list.txt:1: cores=two: expected a number such as 2"),
        ("a: cores=-1 :: 1", "list.txt:1: cores=-1: expected a number such as 2"),
        ("a: cores=inf :: 1", "list.txt:1: cores=inf: expected a number such as 2"),
        ("a: memory=lots :: 1", "list.txt:1: memory=lots: expected an amount such as 4GB"),
        ("a: memory=infGB :: 1", "list.txt:1: memory=infGB: expected an amount"),
        ("a: timeout=-1 :: 1", "list.txt:1: timeout=-1: expected a time such as 90s"),
        ("a: retries=1.5 :: 1", "list.txt:1: retries=1.5: expected a whole number"),
        ("a: retries=-1 :: 1", "list.txt:1: retries=-1: expected a whole number"),
        ("a: cores=1 cores=2 :: 1", "list.txt:1: cores= is given twice"),
        ("a: after=b,,c :: 1", "list.txt:1: after=b,,c: give one name or several"),
        ("a/b: :: 1", "list.txt:1: 'a/b' is no name"),
        ("true\na: ::", "list.txt:2: there is no command after '::'"),
        ("true\nfoo\0bar", "list.txt:2: the line holds a null byte"),
    ],
)
def test_an_error_names_file_and_line(text: str, message: str) -> None:
    assert re.match(re.escape(message), error_of(text))


def test_what_is_written_reads_back_as_the_same() -> None:
    tasks = [
        FlatTask("echo plain"),
        FlatTask("echo a :: b"),
        FlatTask("cores=2 echo :: x"),
        FlatTask("# no comment"),
        FlatTask("true", "a", cores=2.5, memory=1234, timeout=0.25, retries=3),
        FlatTask("false", "b", ("a",)),
    ]
    again = read(write(tasks), "list.txt")
    assert [(t.command, t.name, t.after, t.cores, t.memory, t.timeout, t.retries) for t in again] == [
        (t.command, t.name, t.after, t.cores, t.memory, t.timeout, t.retries) for t in tasks
    ]


@pytest.mark.parametrize("command", ["a\nb", " ", "echo \\"])
def test_a_command_that_fits_on_no_line_is_not_written(command: str) -> None:
    with pytest.raises(InvalidWorkload, match="cannot stand on one line"):
        write([FlatTask(command)])


def test_a_hundred_thousand_lines_are_read_in_about_a_second() -> None:
    text = "".join(f"t{i}: after=t{max(i - 1, 0) // 2 if i else 1} cores=2 :: echo {i}\n" for i in range(1, 50_000))
    text += "t0: :: true\n" + "echo plain\n" * 50_000
    begun = time.process_time()
    assert len(read(text, "list.txt")) == 100_000
    assert time.process_time() - begun < 3  # a second on an idle machine


# --- declared files -------------------------------------------------------------------------------------


def test_a_task_comes_after_those_that_write_what_it_reads() -> None:
    text = "in=mid.txt out=end.txt :: sort mid.txt\nin=a%20b.txt,c out=./mid.txt :: cat 'a b.txt' c > mid.txt\n"
    tasks = read(text, "list.txt")
    assert [task.line for task in tasks] == [2, 1]
    assert tasks[0].reads == ("a b.txt", "c")
    assert [step.waits for step in flat_steps(tasks, "list.txt")] == [(), ((For.TASK, 1),)]
    assert read(write(tasks), "list.txt") == [tasks[0]._replace(line=1), tasks[1]._replace(line=2)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("out=a :: x\nout=./a :: y\n", r"list.txt:2: ./a is written by x too \(line 1\)"),
        ("in=b out=a :: x\nin=a out=b :: y\n", r"list.txt:1: these tasks wait for each other: x -> y -> x"),
        ("in=a,,b :: x\n", "list.txt:1: in=a,,b: give one path or several"),
        ("out= :: x\n", "list.txt:1: out=: give one path"),
        ("inn=a :: x\n", r"did you mean in\?"),
    ],
)
def test_wrong_declarations_are_named(text: str, said: str) -> None:
    with pytest.raises(InvalidWorkload, match=said):
        flat_steps(read(text, "list.txt"), "list.txt")


def test_a_file_is_not_read_and_written_by_one_task() -> None:
    with pytest.raises(InvalidWorkload, match=r"list.txt:1: .*a is declared as an input and as an output"):
        flat_steps([FlatTask("x", reads=("a",), writes=("a",), line=1)], "list.txt")


def test_amounts_that_grow_are_read_and_written() -> None:
    (task,) = read("memory=2GB*2 timeout=90s*1.5 retries=3 :: x\n", "list.txt")
    assert (task.memory, task.memory_growth, task.timeout, task.timeout_growth) == (2 * 10**9, 2, 90, 1.5)
    assert read(write([task]), "list.txt") == [task]
    assert flat_steps([task], "list.txt")[0].task.memory_growth == 2  # type: ignore[union-attr]
    for text, said in (
        ("memory=2GB*1 retries=1 :: x", "such as 4GB\\*2"),
        ("memory=2GB*2 :: x", "give retries= as well"),
    ):
        with pytest.raises(InvalidWorkload, match=f"list.txt:1: .*{said}"):
            flat_steps(read(text, "list.txt"), "list.txt")
