"""A plain flat list is submitted by the steps that its plan would be lowered to, without a plan being made."""

from __future__ import annotations

import pytest

from bough.describe import flat_list, grouped_list
from bough.describe.flat_list import flat_steps
from bough.describe.steps import steps

LISTS = {
    "nothing": "",
    "plain": "echo a\n# a comment\necho b | sort\n\n:: echo c :: d\n",
    "named": "a: cores=2 memory=4GB :: ./a\nb: after=a timeout=1h retries=2 :: ./b\nafter=a,b :: ./c\n",
    "used before it is there": "last: after=one,two :: ./last\ntwo: after=one :: ./second\none: :: ./first\n",
    "in a folder that is made": "in=d/1 out=e :: ./u\nin=e/f,d/* :: ./w\nz: out=d/ :: ./z\n",
    "continued": "sort \\\n  in.txt\nb: after=c :: two \\\n words\nc: :: ./c\n",
}


@pytest.mark.parametrize("text", LISTS.values(), ids=LISTS)
def test_the_steps_are_those_of_the_plan(text: str) -> None:
    assert flat_steps(flat_list.read(text, "list.txt"), "list.txt") == steps(grouped_list.read(text, "list.txt"))
