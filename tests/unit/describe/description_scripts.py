"""Description scripts that tests read: those of the specification, in the form of TrellisDAG."""

from __future__ import annotations

from bough.describe.plan import Plan
from bough.describe.trellisdag.description_script import read_script

WAVE = """
import sys
N = int(sys.argv[1])
Levels = [["Tile", 2]]
def generateGroup(level, sup): return [[i, j] for i in range(N) for j in range(N)]
def getDependent(level, g, sup): return [[g[0]-1, g[1]], [g[0], g[1]-1]]
def getJobsExecutables(level, g): return ["./sweep", "./check"]
def getJobsParameters(level, g): return ["%d %d" % tuple(g)] * 2
def getJobsAttributes(level, g): return [["release=yes"], ["affinity=yes"]]
for part in ("Prologue", "Epilogue"):
    for what in ("Executables", "Parameters", "Attributes"):
        globals()["get%s%s" % (part, what)] = lambda level, g: []
"""

WAVE_SHORT = """
from bough.describe import arguments, level
n = arguments(int)
@level([(i, j) for i in range(n) for j in range(n)])
def Tile(g, i, j):
    g.after((i - 1, j), (i, j - 1))
    g.task(f"./sweep {i} {j}", release=True)
    g.task(f"./check {i} {j}", affinity=True)
"""

SURVEY = """
import sys
nights, fields = int(sys.argv[1]), int(sys.argv[2])
Levels = [["Night", 1], ["Field", 2]]
def generateGroup(level, sup):
    if level == "Night": return [[n] for n in range(nights)]
    return [[sup[0], f] for f in range(fields)]
def isDependent(level, a, b, sup): return level == "Night" and a[0] == b[0] + 1
def getPrologueExecutables(level, g): return ["./stage_in"] if level == "Night" else []
def getPrologueParameters(level, g): return [str(g[0])] if level == "Night" else []
def getPrologueAttributes(level, g): return [""] if level == "Night" else []
def getJobsExecutables(level, g): return ["./reduce"] if level == "Field" else ["./mosaic"]
def getJobsParameters(level, g): return [" ".join(map(str, g))]
def getJobsAttributes(level, g): return [""]
def getEpilogueExecutables(level, g): return ["./archive"] if level == "Night" else []
def getEpilogueParameters(level, g): return [str(g[0])] if level == "Night" else []
def getEpilogueAttributes(level, g): return [""] if level == "Night" else []
"""

SURVEY_SHORT = """
from bough.describe import arguments, level
nights, fields = arguments(int, int)
@level(range(nights))
def Night(g, n):
    g.after(n - 1)
    g.prologue(f"./stage_in {n}")
    g.task(f"./mosaic {n}")
    g.epilogue(f"./archive {n}")
@level(lambda n: [(n, f) for f in range(fields)], within=Night)
def Field(g, n, f):
    g.task(f"./reduce {n} {f}")
"""

# Slices with 3 and 4 pieces on one level: promotions and captures, captures also seen from the other side.
RUNNING_EXAMPLE = """
Levels = [["Slice", 4]]
def generateGroup(level, sup):
    found = []
    for np in (3, 4):
        for b in range((np + 1) // 2, np):
            w = np - b
            found += [[i, j, b - i, w - j] for i in range(b + 1) for j in range(w + 1) if b > w or b - i >= w - j]
    return found
def getDependent(level, group, sup):
    bk, wk, bc, wc = group
    captures = [[bk - 1, wk, bc, wc], [bk, wk - 1, bc, wc], [bk, wk, bc - 1, wc], [bk, wk, bc, wc - 1]]
    mirrored = [[b, a, d, c] for a, b, c, d in captures]
    return [[bk + 1, wk, bc - 1, wc], [bk, wk + 1, bc, wc - 1]] + captures + mirrored
def getJobsExecutables(level, g): return ["%d%d%d%d.sh" % tuple(g)]
def getJobsParameters(level, g): return [""]
"""

# The two-level script with attributes: VS and Slice, from 3 pieces on.
TWO_LEVELS = """
import sys
Levels = [["VS", 2], ["Slice", 4]]
def generateGroup(level, sup):
    if level == "VS":
        return [[b, np - b] for np in range(3, int(sys.argv[1]) + 1) for b in range((np + 1) // 2, np)]
    b, w = sup
    return [[i, j, b - i, w - j] for i in range(b + 1) for j in range(w + 1) if b > w or b - i >= w - j]
def getDependent(level, g, sup):
    if level == "VS":
        return [[g[0] - 1, g[1]], [g[0], g[1] - 1]]
    bk, wk, bc, wc = g
    return [[bk + 1, wk, bc - 1, wc], [bk, wk + 1, bc, wc - 1]]
def getJobsExecutables(level, g):
    return [("%d%d%d%d" % tuple(g)) + what for what in ("comp", "ver")] if level == "Slice" else []
def getJobsParameters(level, g): return ["", ""] if level == "Slice" else []
def getJobsAttributes(level, g):
    return [["release=yes", "affinity=no"], ["release=no", "affinity=yes"]] if level == "Slice" else []
"""

# All-kings databases up to 7 pieces; with supergroups by the number of pieces if an argument is given.
KINGS = """
import sys
Levels = ([["Piece", 1]] if len(sys.argv) > 1 else []) + [["Rank", 6]]
def pairs(np): return [[b, np - b, 0, 0, 0, 0] for b in range(np - 1, (np - 1) // 2, -1)]
def generateGroup(level, sup):
    if level == "Piece": return [[np] for np in range(2, 8)]
    return pairs(sup[0]) if sup else [pair for np in range(2, 8) for pair in pairs(np)]
def isDependent(level, a, b, sup):
    if level == "Piece": return a[0] > b[0]
    return not sup and a[0] >= b[0] and a[1] >= b[1]
def getJobsExecutables(level, g): return ["./run", "./ver"] if level == "Rank" else []
def getJobsParameters(level, g): return [" ".join(map(str, g))] * 2 if level == "Rank" else []
def getJobsAttributes(level, g): return [["release=yes"], ""] if level == "Rank" else []
"""

# Supergroups that are there to be looked at: they order nothing, and databases wait for databases.
KINGS_VIEW = """
from bough.describe import level
def pairs(np): return [(np, b, np - b) for b in range(np - 1, (np - 1) // 2, -1)]
@level(range(2, 8), barrier=False)
def Piece(g, np): pass
@level(pairs, within=Piece)
def Rank(g, np, b, w):
    for fewer in {(b - 1, w), (b, w - 1)}:
        black, white = max(fewer), min(fewer)
        if white and np > 2:
            g.after(Rank[np - 1, black, white])
    g.task(f"./run {b} {w}", release=True)
    g.task(f"./ver {b} {w}")
"""


def described(script: str, *args: object, file: str = "script.py") -> Plan:
    """The plan that a script makes."""
    return read_script(script, file, [str(arg) for arg in args])
