"""How long a commit takes to have an effect."""

from __future__ import annotations

from datetime import UTC, datetime

import tailrace
from tailrace.demo.freshness import _delays
from tailrace.demo.writer import Commit


def test_a_delay_goes_from_a_commit_to_the_end_of_the_first_refresh_that_has_it() -> None:
    commits = [
        Commit(snapshot=number, at=float(number), kind="order", tables=(), text="")
        for number in (10, 11, 14, 20)
    ]
    done = [_refresh(to=11, ended=12.5), _refresh(to=15, ended=16.0)]
    assert _delays(commits, done) == [2.5, 1.5, 2.0]


def _refresh(*, to: int, ended: float) -> tailrace.Iteration:
    moment = datetime.fromtimestamp(ended, UTC)
    return tailrace.Iteration(
        job_id=1,
        tenant="default",
        sources=(),
        from_snapshot=0,
        to_snapshot=to,
        kind="tail",
        node_id="",
        started_at=moment,
        ended_at=moment,
        seconds=0.1,
    )
