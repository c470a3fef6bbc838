"""What make prints, read back: traces, the data base, and the prefixes of recipe lines."""

from __future__ import annotations

import pytest

from bough.describe.make.make_database import MakeTarget, ignored_lines, read_output

OUTPUT = """hello from the Makefile
Makefile:3: update target 'a.o' due to: a.c gen.h
cc -c a.c \\
  -o a.o
false
<builtin>: update target 't.c' due to: t.y
yacc t.y
Makefile:9: target 'out' does not exist
mkdir -p out
rm t.c
make: 'prog' is up to date.
# GNU Make 4.3
# Built for x86_64-pc-linux-gnu

# Make data base, printed on Mon Nov 16 03:49:27 2026

# Variables

# makefile (from 'Makefile', line 4)
Q = @
# makefile (from 'Makefile', line 5)
IGNORE := -
define canned
@echo one
-echo two
endef

# Files

# Not a target:
a.c:
#  Implicit rule search has been done.

# makefile (from 'Makefile', line 2)
a.o: CFLAGS = -g
a.o: a.c gen.h | out
#  Implicit/static pattern stem: 'a'
# automatic
# @ := a.o
#  recipe to execute (from 'Makefile', line 3):
\t$(Q)$(CC) -c $< \\
\t  -o $@
\t-false

t.c: t.y
#  File is an intermediate prerequisite.
#  recipe to execute (built-in):
\t$(YACC) $<

e:: a.o
#  Phony target (prerequisite of .PHONY).

e:: b.o
#  Also makes: f e

out:
#  recipe to execute (from 'Makefile', line 9):
\tmkdir -p $@

.IGNORE:
# Finished Make data base on Mon Nov 16 03:49:27 2026
"""


def test_a_trace_tells_what_is_made_where_and_why() -> None:
    made = read_output(OUTPUT).made
    assert [(one.target, one.file, one.line, one.newer) for one in made] == [
        ("a.o", "Makefile", 3, ("a.c", "gen.h")),
        ("t.c", "", 0, ("t.y",)),
        ("out", "Makefile", 9, ()),
    ]
    assert made[0].lines == ["cc -c a.c \\\n  -o a.o", "false"]


def test_what_the_makefile_and_make_say_besides_is_no_recipe() -> None:
    assert read_output(OUTPUT).made[-1].lines == ["mkdir -p out"]


def test_a_rule_has_prerequisites_and_those_that_only_come_first() -> None:
    rule = read_output(OUTPUT).rule("a.o")
    assert rule is not None
    assert (rule.prerequisites, rule.order_only) == (("a.c", "gen.h"), ("out",))
    assert rule.recipe == ["$(Q)$(CC) -c $< \\\n  -o $@", "-false"]
    assert rule.variables == {"CFLAGS"}


def test_double_colon_rules_stay_apart() -> None:
    first, second = read_output(OUTPUT).rules["e"]
    assert (first.prerequisites, first.phony) == (("a.o",), True)
    assert (second.prerequisites, second.also) == (("b.o",), ("f", "e"))


def test_special_targets_are_there_with_or_without_prerequisites() -> None:
    told = read_output(OUTPUT)
    assert told.listed(".IGNORE") == ()
    assert told.listed(".ONESHELL") is None


def test_nothing_to_be_made_is_no_rule_to_be_made() -> None:
    assert read_output("make: Nothing to be done for 'all'.\n").made == []


VARIABLES = {"Q": "@", "IGNORE": "-", "canned": "@echo one\n-echo two", "outer": "$(canned)\n@echo three"}


def flags(lines: list[str], recipe: list[str]) -> list[bool]:
    return ignored_lines(MakeTarget("t", lines=lines), recipe, VARIABLES)


def test_a_dash_marks_lines_whose_failure_is_ignored() -> None:
    assert flags(["a", "b", "c"], ["a", "-b", "@-c"]) == [False, True, True]


def test_a_dash_may_come_from_a_variable() -> None:
    assert flags(["a", "b"], ["$(IGNORE)a", "$(Q)b"]) == [True, False]


def test_canned_recipes_have_prefixes_line_by_line() -> None:
    assert flags(["echo one", "echo two", "x"], ["$(canned)", "x"]) == [False, True, False]
    assert flags(["echo one", "echo two", "echo three"], ["$(outer)"]) == [False, True, False]
    assert flags(["echo one", "echo two", "x"], ["-$(canned)", "x"]) == [True, True, False]


def test_lines_that_expanded_to_nothing_are_passed_over() -> None:
    assert flags(["rm x", "cc -c a.c"], ["$(if $(V),echo $@)", "-rm $(THING)", "$(CC) -c $<"]) == [True, False]


def test_lines_of_many_references_are_compared_in_no_time() -> None:
    """One expression would try all ways to divide a line among the references."""
    many = " ".join(f"$(V{number})" for number in range(40))
    recipe = [f"$(CC) {many} -o $@ z", f"-rm {many} y", "$(if $(V),echo $@)"]
    assert flags([f"cc {'a b ' * 200}-o t x", f"rm {'a b ' * 200}y"], recipe) == [False, True]
    assert flags(["cc a -o t   z", "rm y"], recipe) == [False, True]


@pytest.mark.parametrize(
    ("line", "is_rm"),
    [("rm a b", True), ("rm  a x b", True), ("rm b a", False), ("xrm a b", False), ("rm a b c", False)],
)
def test_the_words_of_a_line_stand_in_it_in_their_order(line: str, is_rm: bool) -> None:
    assert flags([line], ["-rm a $(MORE) b", "$(if $(V),nothing)!"]) == [is_rm]


def test_a_trace_is_read_in_time_linear_in_its_lines() -> None:
    long = "Makefile:3: target '" * 20_000
    told = read_output(
        f"{long}\n{long}a' does not exist\nMakefile:7: update target '{'x' * 9} due to: b\n{long}' due to: c\n"
    )
    assert [made.target for made in told.made] == ["a"]


def test_a_trace_says_where_a_target_is_made_and_why() -> None:
    told = read_output("a b:7: update target 'all' due to: x y\ncc\n<builtin>: target 'z.o' does not exist\n")
    first, second = told.made
    assert (first.target, first.file, first.line, first.newer, first.lines) == ("all", "a b", 7, ("x", "y"), ["cc"])
    assert (second.target, second.file, second.line) == ("z.o", "", 0)
