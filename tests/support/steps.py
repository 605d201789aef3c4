"""A node that a test or a measurement drives step by step, on its own thread."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailrace.propagation.scheduler import Execution
from tailrace.propagation.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tailrace


class SteppedNode:
    """See the module."""

    def __init__(self, lake: tailrace.Lake) -> None:
        self._service = Service(lake.runtime, lake._heartbeat, eager=True)

    def step(self) -> int:
        """Look once, and run what is found; returns how many works that was."""
        works = self._service.runner.look()
        for work in works:
            self._service.iterations.run(Execution(work))
            self._service.runner.finished(work)
        return len(works)

    def until_fresh(self) -> None:
        """Step until there is nothing to do."""
        while self.step():
            pass

    def close(self) -> None:
        """Leave."""
        self._service.close()


@contextmanager
def stepped_node(lake: tailrace.Lake) -> Iterator[SteppedNode]:
    """A node of a lake, until the end of the block."""
    node = SteppedNode(lake)
    try:
        yield node
    finally:
        node.close()
