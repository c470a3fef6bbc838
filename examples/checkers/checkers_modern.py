"""The same workflow as checkers.py, in the short form of description scripts."""

import os
import sys
from itertools import product

from bough.describe import level

RUN, VER = os.environ.get("CHECKERS_RUN", "./solve run"), os.environ.get("CHECKERS_VER", "./solve ver")
numbers = [int(word) for word in sys.argv[1:]]
every = [(b, n - b) for n in range(2, numbers[0] + 1) for b in range((n + 1) // 2, n)]


@level([tuple(numbers)] if len(numbers) == 2 else every)
def VS(g, b, w):
    g.after((b - 1, w), (b, w - 1))
    if b + w == 2:
        g.prologue("cc -O2 -o solve " + os.path.join(os.path.dirname(__file__), "solve.c"))


@level(
    lambda b, w: [(i, j, b - i, w - j) for i in range(b + 1) for j in range(w + 1) if b > w or b - i >= w - j],
    within=VS,
)
def Slice(g, bk, wk, bc, wc):
    g.after((bk + 1, wk, bc - 1, wc), (bk, wk + 1, bc, wc - 1))


@level(lambda *s: [(*s, *r) for r in product(range(7) if s[2] else [0], range(7) if s[3] else [0])], within=Slice)
def Rank(g, *part):
    *s, br, wr = part
    g.after((*s, br + 1, wr), (*s, br, wr + 1))
    g.task(f"{RUN} {' '.join(map(str, part))}", release=True)
    g.task(f"{VER} {' '.join(map(str, part))}", affinity=True)
