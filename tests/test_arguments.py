"""Public calls take what they say they take, and refuse the rest in one way."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tailrace
from tailrace.arguments import LONGEST_TEXT, Name, SnapshotId, checked, show
from tailrace.settings import limits
from tests.stress.surface import CLASSES, FUNCTIONS

if TYPE_CHECKING:
    from pathlib import Path


@checked
class Thing:
    """Returns what it gets."""

    def text(self, text: str) -> Any:
        return text

    def name(self, name: Name) -> Any:
        return name

    def snapshot(self, at: SnapshotId | None = None) -> Any:
        return at

    def seconds(self, timeout: float | timedelta | None) -> Any:
        return timeout

    def flag(self, *, flag: bool) -> Any:
        return flag

    def names(self, names: Sequence[Name] | Name) -> Any:
        return names

    def keys(self, keys: Iterable[str]) -> Any:
        return keys

    def options(self, options: Mapping[str, Any]) -> Any:
        return options

    def function(self, function: Callable[[], None]) -> Any:
        return function

    def anything(self, first: object, second: Any, third: Unknown) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return first, second, third


THING = Thing()


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("text", ""),
        ("text", "ü日"),
        ("name", "x" * 255),
        ("snapshot", None),
        ("snapshot", 0),
        ("snapshot", 2**63 - 1),
        ("seconds", 1),
        ("seconds", 0.5),
        ("seconds", timedelta(1)),
        ("names", "a"),
        ("names", ["a", "b"]),
        ("options", {"a": object()}),
        ("function", len),
    ],
)
def test_what_fits_is_taken_as_it_is(method: str, value: Any) -> None:
    assert getattr(THING, method)(value) == value


def test_what_is_as_good_is_taken_too() -> None:
    taken = THING.snapshot(np.int64(5))
    assert (taken, type(taken)) == (5, int)
    assert THING.names(("a", "b")) == ["a", "b"]
    assert THING.keys(name for name in "ab") == ["a", "b"]
    assert THING.anything(1, object, None) == (1, object, None)


@pytest.mark.parametrize(
    ("method", "value", "expected"),
    [
        ("text", None, "text, not None"),
        ("text", b"x", "text, not b'x'"),
        ("text", "a\0b", "null character"),
        ("text", "\ud800", "surrogate"),
        ("text", "x" * (LONGEST_TEXT + 1), f"{LONGEST_TEXT:,}"),
        ("name", "", "a name of 1 to 255 characters"),
        ("name", "x" * 256, "a name of 1 to 255 characters"),
        ("snapshot", True, "a whole number"),
        ("snapshot", 1.0, "a whole number"),
        ("snapshot", "1", "a whole number"),
        ("snapshot", -1, "from 0 to"),
        ("snapshot", 2**63, "from 0 to"),
        ("seconds", float("nan"), "a number"),
        ("seconds", "1", "a number or a timedelta or None"),
        ("seconds", True, "a number"),
        ("names", [1], "a list, each a name"),
        ("names", {"a": 1}, "a list"),
        ("names", 5, "a list"),
        ("options", [("a", 1)], "a dict"),
        ("function", "len", "a function"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(
    method: str, value: Any, expected: str
) -> None:
    parameter = list(inspect.signature(getattr(Thing, method)).parameters)[1]
    with pytest.raises(tailrace.InvalidError, match=expected) as caught:
        getattr(THING, method)(value)
    assert f"thing.{method}({parameter}=…) takes " in str(caught.value)
    assert len(str(caught.value)) < 400


def test_only_a_call_that_python_refuses_is_a_type_error() -> None:
    for call in (
        THING.text,
        lambda: THING.text("a", "b"),  # type: ignore[call-arg]
        lambda: THING.text(txt="a"),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError):
            call()


def test_a_value_is_shown_in_short_and_whatever_it_does() -> None:
    class Sulky:
        def __repr__(self) -> str:
            raise ValueError

    assert "Sulky" in show(Sulky())
    assert show(["id", 5]) == "['id', 5]"
    assert len(show("x" * 10_000)) < 100


def test_whatever_is_exported_is_checked() -> None:
    unchecked = [
        f"{name}.{member}"
        for name, kind in CLASSES.items()
        for member, function in vars(kind).items()
        if not member.startswith("_")
        and inspect.isfunction(function)
        and len(inspect.signature(function).parameters) > 1
        and not hasattr(function, "__wrapped__")
    ]
    unchecked += [
        name
        for name, function in FUNCTIONS.items()
        if inspect.isfunction(function)
        and function.__module__.startswith("tailrace")
        and not hasattr(function, "__wrapped__")
    ]
    # The one users write, and the runner calls; the other is for the front doors.
    assert set(unchecked) == {"Trigger.due", "VerifyReport.said"}


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in vars(tailrace.Settings()) if name[0] != "_"])
def test_a_setting_has_a_type_and_a_range(name: str) -> None:
    least, most = limits(name)
    usual = getattr(tailrace.Settings(), name)
    step = 1 if isinstance(usual, int) else timedelta(microseconds=1)
    for good in (least, usual, most):
        assert getattr(tailrace.Settings(**{name: good}), name) == good
    for wrong in (least - step, most + step, None, "1", True, 1.5, float("nan")):
        with pytest.raises(tailrace.InvalidError, match=rf"Settings\.{name} is .* from .* to "):
            tailrace.Settings(**{name: wrong})


def test_negative_workers_and_retention_are_refused() -> None:
    with pytest.raises(tailrace.InvalidError, match=r"Settings\.workers is a whole number from 1 "):
        tailrace.Settings(workers=-1)
    with pytest.raises(tailrace.InvalidError, match=r"drop_timeout is a timedelta from 0:"):
        tailrace.Settings(drop_timeout=timedelta(days=-1))


# --- as users meet them -------------------------------------------------------------------------


def test_wrong_arguments_of_a_lake(tmp_path: Path) -> None:
    with tailrace.connect(tmp_path / "lake") as lake:
        table = lake.create_table("t", {"id": "bigint"}, primary_key="id")
        before = lake.snapshot
        given: Any
        for call, given in (
            (lake.sql, None),
            (lake.sql, "SELECT '\ud800'"),
            (lake.create_schema, "a\0b"),
            (lake.changed_tables, 2**63),
            (lake.changed_tables, "1"),
            (lake.purges, -1),
            (lake.jobs.history, 5),
            (lake.run_until_fresh, -1),
            (lake.run_until_fresh, 1e300),
            (lake.run_until_fresh, timedelta.max),
            (lake.usage, "today"),
            (lake.view, None),
            (lake.indexes, 5),
            (table.to_arrow, object()),
            (table.drop_column, None),
            (tailrace.connect, None),
            (tailrace.connect, "x" * 5000),
            (tailrace.connect, "~nobody-has-this-name/lake"),
            (tailrace.as_of, 5),
            (tailrace.trigger, None),
            (tailrace.consumer, "\ud800"),
            (tailrace.register, "spark"),
        ):
            with pytest.raises(tailrace.InvalidError):
                call(given)
        assert lake.snapshot == before
    with pytest.raises(tailrace.InvalidError, match="SparkSession"):
        tailrace.connect(tmp_path / "other", spark=5)  # type: ignore[arg-type]


def test_the_names_of_built_in_consumers_are_taken(tmp_path: Path) -> None:
    for name in ("view", "replica", "fulltext", "vector"):
        with pytest.raises(tailrace.InvalidError, match="built-in"):
            tailrace.consumer(name)(lambda changes, txn, job: None)  # noqa: ARG005
