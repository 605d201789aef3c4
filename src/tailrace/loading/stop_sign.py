"""Tells the Spark tasks of a load, on any machine, that nobody needs their results any more.

The sign is an object in the lake's storage, which all tasks reach. Spark's own cancelling can hit a
task while it is being launched, and then leaves a core blocked.
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
    path: str  # a name that nothing else uses
    _looked: float = field(default=0.0, compare=False)

    def put_up(self) -> None:
        """Tell all tasks to end soon. If that fails, they run to their normal end."""
        with suppress(UnavailableError), self.storage.open_write(self.path) as sink:
            sink.native.write(b"stop")

    def is_up(self) -> bool:
        """Whether to end; looks at most once a second."""
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
