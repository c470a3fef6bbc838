"""From a call of the user to a submission.

It offers the methods that submit (`submitter`, `groups`), their `options`, and what they do: `calls`, `commands`,
`arrays`, `feeds`, whole `plans`. `context` says what all of them ask of a session.
"""
