"""Checkers endgame databases as a description script, in the form of TrellisDAG.

    bough run checkers.py 4          all databases of up to 4 pieces
    bough run checkers.py 4 3        those of 4 black against 3 white pieces alone, if all smaller ones are there

A database is computed in parts: by how many pieces each side has (VS), how many of them are kings (Slice: black kings,
white kings, black checkers, white checkers) and how far the leading checkers have come (Rank). A part is computed
(`run`), and everybody who needs it may go on (release); then it is verified where it was computed (`ver`, affinity).
Before the first of all the program is compiled.
"""

import os
import sys

RUN = os.environ.get("CHECKERS_RUN", "./solve run")
VER = os.environ.get("CHECKERS_VER", "./solve ver")
BUILD = "cc -O2 -o solve " + os.path.join(os.path.dirname(__file__), "solve.c")

numbers = [int(word) for word in sys.argv[1:]]

Levels = [["VS", 2], ["Slice", 4], ["Rank", 6]]


def generateGroup(level, superGroup):
    if level == "VS":
        return generateVS()
    if level == "Slice":
        return generateSlices(superGroup)
    return generateRanks(superGroup)


def generateVS():
    if len(numbers) == 2:
        return [numbers]
    groups = []
    for pieces in range(2, numbers[0] + 1):
        for black in range((pieces + 1) // 2, pieces):
            groups.append([black, pieces - black])
    return groups


def generateSlices(superGroup):
    black, white = superGroup
    groups = []
    for bk in range(black + 1):
        for wk in range(white + 1):
            bc, wc = black - bk, white - wk
            if black > white or bc >= wc:  # otherwise its mirror image is computed
                groups.append([bk, wk, bc, wc])
    return groups


def generateRanks(superGroup):
    bk, wk, bc, wc = superGroup
    groups = []
    for br in range(7) if bc else [0]:
        for wr in range(7) if wc else [0]:
            groups.append([bk, wk, bc, wc, br, wr])
    return groups


def getDependent(level, group, superGroup):
    if level == "VS":  # a capture
        black, white = group
        return [[black - 1, white], [black, white - 1]]
    if level == "Slice":  # a checker becomes a king
        bk, wk, bc, wc = group
        return [[bk + 1, wk, bc - 1, wc], [bk, wk + 1, bc, wc - 1]]
    bk, wk, bc, wc, br, wr = group  # a leading checker goes ahead
    return [[bk, wk, bc, wc, br + 1, wr], [bk, wk, bc, wc, br, wr + 1]]


def getJobsExecutables(level, group):
    return [RUN, VER] if level == "Rank" else []


def getJobsParameters(level, group):
    return [" ".join(map(str, group))] * 2 if level == "Rank" else []


def getJobsAttributes(level, group):
    return [["release=yes"], ["affinity=yes"]] if level == "Rank" else []


def getPrologueExecutables(level, group):
    return [BUILD] if group == [1, 1] else []


def getPrologueParameters(level, group):
    return [""] if group == [1, 1] else []


def getPrologueAttributes(level, group):
    return [[]] if group == [1, 1] else []


def getEpilogueExecutables(level, group):
    return []


def getEpilogueParameters(level, group):
    return []


def getEpilogueAttributes(level, group):
    return []
