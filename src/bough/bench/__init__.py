"""Measuring Bough on this machine, beside its peers and beside what the machine itself can do.

It uses Bough as users do, through `bough.Session` and the command line; `insides` alone looks into its parts.
Rule: every figure stands beside another one of the same run, taken by turns, because machines change their speed.
"""
