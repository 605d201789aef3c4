"""The checker of list-append finds what it is for."""

from __future__ import annotations

import pytest

from tests.stress.list_append import Attempt, Ended, History, check


def attempt(number: int, base: int, **more: object) -> Attempt:
    value = f"v{number}"
    made = Attempt(id=f"t{number}", base=base, reads={0: ()}, appends={0: value, 1: value})
    made.ended, made.snapshot = Ended.COMMITTED, base + 1
    for name, one in more.items():
        setattr(made, name, one)
    return made


def history(*states: tuple[tuple[str, ...], tuple[str, ...]]) -> History:
    at = {n: {0: one, 1: other} for n, (one, other) in enumerate(states)}
    made = History(at)
    made.log.update({value for state in states for items in state for value in items})
    return made


GOOD = history(((), ()), (("v1",), ("v1",)), (("v1", "v2"), ("v1", "v2")))
FIRST = attempt(1, 0, reads={0: (), 1: ()})
SECOND = attempt(2, 1, reads={0: ("v1",), 1: ("v1",)})


def test_a_right_history_is_right() -> None:
    failed = attempt(3, 1, reads={0: ("v1",)}, ended=Ended.FAILED, snapshot=None)
    killed = attempt(4, 0, ended=Ended.KILLED, snapshot=None)
    assert check([FIRST, SECOND, failed, killed], GOOD) == []


WRONG = [
    ("read 0 as it never was", [attempt(1, 0, reads={0: ("v9",), 1: ()}), SECOND], GOOD),
    ("is lost", [FIRST, SECOND, attempt(3, 1, reads={0: ("v1",), 1: ("v1",)})], GOOD),
    ("said to have failed", [FIRST, attempt(2, 1, reads={}, ended=Ended.FAILED)], GOOD),
    ("not the snapshot", [FIRST, attempt(2, 1, reads=SECOND.reads, snapshot=1)], GOOD),
    ("had not seen", [FIRST, attempt(2, 0, reads={0: (), 1: ()}, snapshot=2)], GOOD),
    ("torn", [FIRST], history(((), ()), (("v1",), ()))),
    ("doubled", [FIRST], history(((), ()), (("v1", "v1"), ("v1",)))),
    ("lost something", [FIRST], history(((), ()), (("v1",), ("v1",)), ((), ("v1",)))),
]


@pytest.mark.parametrize(("said", "attempts", "states"), WRONG, ids=[one[0] for one in WRONG])
def test_an_anomaly_is_found(said: str, attempts: list[Attempt], states: History) -> None:
    assert any(said in found for found in check(attempts, states))
