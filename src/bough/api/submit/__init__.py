"""From a call of the user to a submission.

It offers the methods (`submitter`), their options, calls, commands, sweeps, feeds, groups, whole plans.
"""
