"""The results of the demo, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.demo.check import Check
from tailrace.demo.derived import Derived
from tailrace.demo.freshness import Refreshes
from tailrace.demo.writer import Commit


@dataclass(frozen=True, kw_only=True)
class Result:
    """What is known of one derived object at the end."""

    derived: Derived
    check: Check
    refreshes: Refreshes
    recompute_seconds: float  # once
    search_seconds: float | None = None  # of an index: what a search took in the live part

    @property
    def recompute_every_time(self) -> float:
        """What recomputing instead of each refresh would have taken."""
        return self.refreshes.count * self.recompute_seconds

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        done = self.refreshes
        searched: dict[str, Any] = {}
        if self.check.searches:
            searched["searches_checked"] = self.check.searches
        if self.search_seconds is not None:
            searched["search_seconds"] = round(self.search_seconds, 4)
        return {
            "name": self.derived.name,
            "what": self.derived.what,
            "rows": self.check.rows,
            "watermark": self.check.watermark,
            "ok": self.check.ok,
            "missing": self.check.missing,
            "extra": self.check.extra,
            "refreshes": done.count,
            "refresh_seconds": round(done.seconds, 3),
            "strategies": done.strategies,
            "delay_seconds": None if done.delay is None else round(done.delay, 3),
            "longest_delay_seconds": (
                None if done.longest_delay is None else round(done.longest_delay, 3)
            ),
            "recompute_seconds": round(self.recompute_seconds, 3),
            "recompute_every_time_seconds": round(self.recompute_every_time, 3),
            **searched,
        }


def document(
    *,
    results: Sequence[Result],
    commits: Sequence[Commit],
    lake: str | None,
    is_new: bool,
    rows: dict[str, int],
    began_at: int,
    live_seconds: float,
    seconds: float,
) -> dict[str, Any]:
    """All of it, as one document."""
    return {
        "ok": all(result.check.ok for result in results),
        "lake": lake,  # None if it was temporary
        "is_new": is_new,
        "began_at_snapshot": began_at,
        "rows": rows,
        "live_seconds": round(live_seconds, 1),
        "seconds": round(seconds, 1),
        "commits": {"count": len(commits), **Counter(commit.kind for commit in commits)},
        "derived": [result.to_dict() for result in results],
    }
