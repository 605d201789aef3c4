"""A sign that tells the tasks of a load, on whatever machine, that nobody waits for them.

It is an object in the lake's storage, which all of them reach. Spark's own way of cancelling may
come while a task is being launched, and then leaves a core blocked.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field

import obstore
from obstore.exceptions import BaseError

from tailrace.errors import UnavailableError
from tailrace.objects import Storage

_LOOK_EVERY = 1.0  # seconds


@dataclass(kw_only=True)
class StopSign:
    """Put up by the driver or a task, looked for in tasks."""

    storage: Storage
    path: str  # of a name that is used for nothing else
    _looked: float = field(default=0.0, compare=False)

    def put_up(self) -> None:
        """Tell all tasks to end soon. If that fails, they go on to their own end."""
        with suppress(UnavailableError), self.storage.open_write(self.path) as sink:
            sink.native.write(b"stop")

    def is_up(self) -> bool:
        """Whether to end; asks at most once in a while."""
        if time.monotonic() - self._looked < _LOOK_EVERY:
            return False
        self._looked = time.monotonic()
        if self.storage.local is not None:
            return (self.storage.local / self.path).exists()
        try:
            obstore.head(self.storage.store, self.path)
        except (BaseError, FileNotFoundError):
            return False
        return True
