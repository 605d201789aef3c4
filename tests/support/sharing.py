"""How the processes of a run share its tests: one by one, but some files as a whole."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

# Views are built by one test and refreshed by a later one, over a lake that takes long to make.
# Not by xdist's own mark for this, which has no effect on tests of pytest 9.2.
WHOLE_FILES = "tests/oracle/"


class Sharing(LoadScopeScheduling):  # type: ignore[misc]
    """Gives tests to processes in their order, as these have time; the largest files come first."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith(WHOLE_FILES) else nodeid
