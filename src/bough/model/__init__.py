"""What things are: frozen values, and small pure structures (ranges, the states of an array, measured run times).

`tasks`, `outcomes`, `events` and `commands` are what the journal and the wire carry; `states` has the states of a task,
once for all layers; `bounds` and `ids` have the types of their fields. The rooms: `arrays`, `commands`, `events`,
`monitoring`, `sites` (where tasks may run) and `texts`.

Rule: `refs`, `packed_values`, `spaces` and `filtering` stay where they are, for stored pickles name them.
"""
