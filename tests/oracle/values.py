"""Random values of every column type, and rows in a form in which they can be compared."""

from __future__ import annotations

import struct
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

Row = dict[str, Any]

_MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
_TEXTS = ("", "a", "b", "ü", "漢字", "it's", 'a "quote"', "line\nbreak", "z" * 300)


def _moment(random: Random) -> datetime:
    return _MOMENT + timedelta(days=random.choice([-300_000, -1, 0, 1, 20_000]), microseconds=1)


# Few distinct values, so that rows repeat and keys meet.
GENERATORS: dict[str, Callable[[Random], Any]] = {
    "tinyint": lambda r: r.choice([-128, 0, 1, 127]),
    "smallint": lambda r: r.choice([-32768, 0, 1, 32767]),
    "int": lambda r: r.choice([-(2**31), 0, 1, 2**31 - 1]),
    "bigint": lambda r: r.choice([-(2**63), -1, 0, 1, 2**63 - 1]),
    "float": lambda r: r.choice([0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf")]),
    "double": lambda r: r.choice([0.0, -0.0, 0.1, 1e300, float("nan"), -float("inf")]),
    "decimal(10,2)": lambda r: Decimal(r.randint(-500, 500)).scaleb(-2),
    "decimal(20,2)": lambda r: Decimal(r.choice([-(10**19), -1, 0, 1, 250, 10**19])).scaleb(-2),
    "decimal(38,10)": lambda r: Decimal(r.choice([0, 10**27, -(10**27)])).scaleb(-10),
    "string": lambda r: r.choice(_TEXTS),
    "binary": lambda r: r.choice([b"", b"\x00", b"\xff\xfe", b"abc"]),
    "boolean": lambda r: r.choice([True, False]),
    "date": lambda r: date(2024, 2, 29) + timedelta(days=r.choice([-300_000, 0, 1, 40_000])),
    "timestamp": _moment,
    "timestamp_ntz": lambda r: _moment(r).replace(tzinfo=None),
    "array<int>": lambda r: [r.choice([None, 0, 7]) for _ in range(r.randint(0, 3))],
    "struct<a: int, b: array<string>>": lambda r: {
        "a": r.choice([None, 1]),
        "b": r.choice([None, [], ["x", None]]),
    },
    "map<string, double>": lambda r: {
        key: r.choice([None, 0.5, float("nan")]) for key in r.sample("abc", r.randint(0, 3))
    },
}
KEY_TYPES = ("bigint", "int", "string", "decimal(10,2)", "date", "timestamp", "boolean", "binary")
WIDER = {
    "tinyint": "smallint",
    "smallint": "int",
    "int": "bigint",
    "float": "double",
    "decimal(10,2)": "decimal(20,2)",
}
assert GENERATORS.keys() >= set(WIDER.values())


def value(random: Random, kind: str) -> Any:
    """A value of a type, NULL now and then."""
    if random.random() < 0.15:
        return None
    made = GENERATORS[kind](random)
    # Arrow takes a map as a list of pairs.
    return list(made.items()) if kind.startswith("map") else made


def key_value(random: Random, kind: str) -> Any:
    """A value for a key column: more of them, and never NULL."""
    if kind in ("bigint", "int"):
        return random.randint(0, 30)
    if kind == "string":
        return random.choice("abcdefgüh漢") + random.choice("0123")
    return GENERATORS[kind](random)


def comparable(given: Any) -> Any:
    """A value that is equal to another just if nothing could tell the two apart."""
    if isinstance(given, float):
        return "nan" if given != given else struct.pack(">d", given)  # noqa: PLR0124
    if isinstance(given, list):
        if given and all(isinstance(pair, tuple) and len(pair) == 2 for pair in given):
            return tuple(sorted((repr(k), comparable(v)) for k, v in given))
        return tuple(comparable(item) for item in given)
    if isinstance(given, dict):
        return tuple(sorted((repr(k), comparable(v)) for k, v in given.items()))
    if isinstance(given, datetime):
        return given.astimezone(UTC).isoformat() if given.tzinfo else given.isoformat()
    return None if given is None else str(given)


def bag(rows: Iterable[Row]) -> Counter[Any]:
    """Rows as a bag, whatever their order and that of their columns."""
    return Counter(
        tuple(sorted((name, comparable(given)) for name, given in row.items())) for row in rows
    )
