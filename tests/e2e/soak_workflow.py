"""One of the workflows of the soak: rounds of arrays, functions and commands, each of which notes every execution.

python soak_workflow.py ADDRESS NAME TASKS ROUNDS SECONDS. A function appends its label and a number that no other
execution has, which is also its value; a command its task and attempt. Begins a round when its time has come, waits
for all of them in the end, and prints how many tasks there were.
"""

from __future__ import annotations

import functools
import os
import sys
import time

import bough

PARTS = {"array": 0.78, "sweep": 0.15, "submit": 0.05, "command": 0.02}  # of all tasks
_COMMAND = "printf '%s %s\\n' $BOUGH_TASK $BOUGH_ATTEMPT >> {path}"


def note(path: str, label: str) -> str:
    nonce = os.urandom(8).hex()
    number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(number, f"{label} {nonce}\n".encode())
    os.close(number)
    return nonce


def element(path: str, name: str, index: int) -> str:
    time.sleep(0.002)
    return note(path, f"{name}.{index}")


def loose(path: str, label: str, before: str = "") -> str:
    time.sleep(0.01)
    return note(path, label)


def one_round(session: bough.Session, name: str, number: int, tasks: int) -> list[object]:
    functions, commands = os.path.abspath(f"{name}.functions"), os.path.abspath(f"{name}.commands")
    count = {part: max(2, round(share * tasks)) for part, share in PARTS.items()}
    found: list[object] = []
    array = session.options(name=f"a{number}").map(
        functools.partial(element, functions, f"a{number}"), range(count["array"])
    )
    found.append(array)
    sweep = session.sweep(
        _COMMAND + " # {n}", bough.tie(n=list(range(count["sweep"]))), path=commands, name=f"s{number}"
    )
    found.append(sweep)
    before: object = ""
    for index in range(count["submit"]):
        label = f"f{number}-{index}"
        before = session.options(name=label).submit(loose, functions, label, before if index % 3 else "")
        found.append(before)
    for index in range(count["command"]):
        label = f"c{number}-{index}"
        text = _COMMAND + "; sleep 0.3; printf '%s\\n' {label} > {dst:w}"
        found.append(session.command(text, path=commands, label=label, dst=f"out/{name}-{label}.txt", name=label))
    return found


def main() -> None:
    address, name, tasks, rounds, seconds = sys.argv[1:]
    os.makedirs("out", exist_ok=True)
    begun, total = time.monotonic(), 0
    with bough.Session(address, name=name) as session:
        found: list[object] = []
        for number in range(int(rounds)):
            time.sleep(max(0.0, begun + number * float(seconds) / int(rounds) - time.monotonic()))
            found += one_round(session, name, number, int(tasks) // int(rounds))
        for one in found:
            if isinstance(one, bough.Task):
                one.result()
                total += 1
            else:
                total += len(one.results())  # type: ignore[attr-defined]
    print(total)


if __name__ == "__main__":
    main()
