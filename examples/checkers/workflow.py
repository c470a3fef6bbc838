"""The same databases from a Python script: groups with the same dependencies, and the table at the end.

    bough run workflow.py 3

What the descriptions leave to the reader of the folder is said here: the program is made from its source, and a
part leaves a file. So a changed `solve.c` has everything computed again, and a database that was removed its part.
"""

import sys
from pathlib import Path

import bough

pieces = int(sys.argv[1])
source = Path(__file__).with_name("solve.c")


def ranks(checkers, most=6):
    return range(most, -1, -1) if checkers else [0]


def database(bk, wk, bc, wc, br, wr):
    return f"databases/{bk}{wk}{bc}{wc}.{br}{wr}"


with bough.Session() as s:
    s.command("cc -O2 -o {program:w} {source:r}", program="./solve", source=source, name="compile")
    made = {}  # groups by the numbers they are about

    def group(kind, numbers, *before, **options):
        after = [made[one] for one in before if one in made]
        made[numbers] = s.group("_".join(map(str, (kind, *numbers))), after=after, **options)
        return made[numbers]

    def part(bk, wk, bc, wc, br, wr):
        slice_ = (bk, wk, bc, wc)
        with group("Rank", (*slice_, br, wr), (*slice_, br + 1, wr), (*slice_, br, wr + 1), pipeline=True):
            what = {"program": "./solve", "part": [bk, wk, bc, wc, br, wr]}
            files = [
                database(bk, wk, bc, wc, br, wr),
                database(wk, bk, wc, bc, wr, br),
            ]  # the part and its mirror image
            files = list(dict.fromkeys(files))
            s.command("{program:r} run {part} {files:w}", **what, files=files, release=True)
            s.command("{program:r} ver {part}", **what, affinity=True)

    for black, white in [(b, n - b) for n in range(2, pieces + 1) for b in range((n + 1) // 2, n)]:
        with group("VS", (black, white), (black - 1, white), (black, white - 1)):
            for bk, wk in [(i, j) for i in range(black, -1, -1) for j in range(white, -1, -1)]:
                bc, wc = black - bk, white - wk
                if black == white and bc < wc:
                    continue  # its mirror image is computed
                twin = (bk, bc) == (wk, wc)  # its own mirror image: so are ranks the other way round
                with group("Slice", (bk, wk, bc, wc), (bk + 1, wk, bc - 1, wc), (bk, wk + 1, bc, wc - 1)):
                    for br in ranks(bc):
                        for wr in ranks(wc, br if twin else 6):
                            part(bk, wk, bc, wc, br, wr)

    after = [made[numbers] for numbers in made if len(numbers) == 2]
    print(
        s.command("{program:r} table {pieces}", program="./solve", pieces=pieces, after=after).result().stdout, end=""
    )
