"""What a run has done: its random cases, counted by the tests, and the time of its processors.

A test says how many cases it made, in whatever process of the run it is; the sums are shown at the
run's end, so that nobody takes a short run for a long one.
"""

from __future__ import annotations

import os
import resource
import sys
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_PROPERTY = "random cases"
_PR_SET_CHILD_SUBREAPER = 36

_by_this_test: Counter[str] = Counter()
_by_all: Counter[str] = Counter()


def count(what: str, cases: int = 1) -> None:
    """A test has made so many random cases of a kind."""
    _by_this_test[what] += cases


def attach(report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
    """Send what the test has counted along with its report."""
    if call.when == "call":
        report.user_properties += [(_PROPERTY, item) for item in _by_this_test.items()]
    _by_this_test.clear()


def collect(report: pytest.TestReport) -> None:
    """Add what came with a test's report."""
    for name, value in report.user_properties:
        if report.when == "call" and name == _PROPERTY:
            what, cases = value
            _by_all[what] += cases


def lines() -> list[str]:
    """The sums, by kind."""
    return [f"{cases:>7,}  {what}" for what, cases in sorted(_by_all.items())]


def adopt_orphans() -> None:
    """Become the parent of all that descendants leave behind, so that their time is known too.

    Python does not wait for the Java that PySpark has started, for one.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def processor_minutes() -> float:
    """The time of this process and of all its descendants that have ended; called at the end.

    Without Spark's Python workers: the process that forks them does not ask for their time.
    """
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:  # none is left
        pass
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) / 60
