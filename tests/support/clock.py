"""A clock that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class MovableClock:
    """The machine's time, plus what the test has added."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def advance(self, by: timedelta) -> None:
        """Let time pass."""
        self._ahead += by
