"""How tasks are bundled on their way: what Falkon calls bundling, pick-up and piggy-backing. Best left alone.

Session, server and relay pass these options on as one value. The words for them are `bundle`, `pickup` and
`piggyback` in `Session(...)`, and `--pickup N` and `--no-piggyback` on the command line of a server.

Rules: without them everything is chosen by what was measured. Light to import: the embedded server reads it first.
"""

from __future__ import annotations

PICKUP, NO_PIGGYBACK = "--pickup", "--no-piggyback"


class DispatchTuning:
    """See the module. A plain class: a named tuple takes longer to make than all else that a server loads first."""

    __slots__ = ("bundle", "max_span", "piggyback")

    def __init__(self, bundle: int = 0, max_span: int = 0, piggyback: bool = True) -> None:
        self.bundle = bundle  # loose tasks in one message to the server, one message at a time; 0: as many as there are
        self.max_span = max_span  # most tasks that are sent to an executor at once; 0: as run times suggest
        self.piggyback = piggyback  # False: work never travels with an acknowledgement, an executor asks for it first

    def server_words(self) -> list[str]:
        """The options for a server process; the bundle is the client's own matter."""
        words = [PICKUP, str(self.max_span)] if self.max_span else []
        return words if self.piggyback else [*words, NO_PIGGYBACK]
