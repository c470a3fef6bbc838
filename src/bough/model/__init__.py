"""What things are: frozen values, and small pure structures (ranges, the states of an array, measured run times).

`tasks`, `outcomes`, `events` and `commands` are what the journal and the wire carry; `states` has the states of a task,
once for all layers; `bounds` and `ids` have the types of their fields.
"""
