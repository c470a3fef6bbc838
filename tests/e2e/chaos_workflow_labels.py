"""What the chaos workflow ought to make: the names of a round's tasks, and what their files hold."""

from __future__ import annotations


def labels_of(number: int) -> list[str]:
    """The names of all tasks of a round."""
    chains = [f"c{number}-{chain}-{link}" for chain in range(3) for link in range(4)]
    functions = [f"f{number}-{index}" for index in range(2)]
    mapped = [f"m{number}-{index}" for index in range(24)]
    swept = [f"s{number}-{index}" for index in range(8)]
    return [*chains, *functions, *mapped, *swept]


def text_of(label: str) -> str:
    """What the output of a command holds: one line for each link of its chain up to it."""
    if not label.startswith("c"):
        return f"{label}\n"
    chain, _, link = label.rpartition("-")
    return "".join(f"{chain}-{index}\n" for index in range(int(link) + 1))
