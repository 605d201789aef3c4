"""When to look at which group again: a heap of moments, of which each group has at most one that
counts.
"""

from __future__ import annotations

import heapq
import itertools
from datetime import datetime

from tailrace.propagation.job_cache import GroupKey


class DueTimes:
    """See the module."""

    def __init__(self) -> None:
        # Keys are of several types, so that a number decides between equal moments.
        self._heap: list[tuple[datetime, int, GroupKey]] = []
        self._earliest: dict[GroupKey, datetime] = {}
        self._numbers = itertools.count()

    def add(self, key: GroupKey, moment: datetime) -> None:
        """Look at a group at a moment, unless it is due before that anyway."""
        known = self._earliest.get(key)
        if known is None or moment < known:
            self._earliest[key] = moment
            heapq.heappush(self._heap, (moment, next(self._numbers), key))

    def pop(self, now: datetime) -> set[GroupKey]:
        """The groups that are due by now; they are forgotten."""
        due = set()
        while self._heap and self._heap[0][0] <= now:
            _, _, key = heapq.heappop(self._heap)
            self._earliest.pop(key, None)
            due.add(key)
        return due

    def next(self) -> datetime | None:
        """When the next of them is due."""
        return self._heap[0][0] if self._heap else None
