"""The three tables of Nexmark: columns, keys, rows, and the queries over them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.support import queries as query_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    import tailrace

    Numbers = npt.NDArray[np.int64]

TABLES = {
    "person": {
        "id": "bigint",
        "name": "string",
        "email_address": "string",
        "credit_card": "string",
        "city": "string",
        "state": "string",
        "date_time": "timestamp",
        "extra": "string",
    },
    "auction": {
        "id": "bigint",
        "item_name": "string",
        "description": "string",
        "initial_bid": "bigint",
        "reserve": "bigint",
        "date_time": "timestamp",
        "expires": "timestamp",
        "seller": "bigint",
        "category": "bigint",
        "extra": "string",
    },
    # It has no key, as in the benchmark: a bid may come twice.
    "bid": {
        "auction": "bigint",
        "bidder": "bigint",
        "price": "bigint",
        "channel": "string",
        "url": "string",
        "date_time": "timestamp",
        "extra": "string",
    },
}
KEYS = {"person": "id", "auction": "id", "bid": None}

PERSONS, AUCTIONS, EVENTS = 1, 3, 50  # of so many events
# A day has this many events, a few milliseconds apart, and the next begins at another hour: so
# windows of ten seconds hold many events, and there are several days and times of day.
DAY_EVENTS, EVENT_MILLISECONDS, HOURS_LATER = 5_000, 20, 31
START = datetime(2024, 3, 1, 1, tzinfo=UTC)

CITIES = ("Phoenix", "Seattle", "Boise", "Portland", "Bend", "Redmond", "Kent", "Cheyenne")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
FIRST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Walter")
LAST = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))


def queries() -> dict[str, str]:
    """The queries by name: `q0` and so on."""
    return query_files.read(Path(__file__).parent / "queries")


def create(lake: tailrace.Lake) -> None:
    """Create the tables in `main`."""
    for name, columns in TABLES.items():
        lake.create_table(name, columns, primary_key=KEYS[name])


@dataclass
class Stream:
    """Events in their order; each call of `take` goes on where the last one ended."""

    seed: int
    position: int = 0

    def take(self, events: int) -> dict[str, pa.Table]:
        """The rows of the next so many events, by table."""
        draw = np.random.default_rng([self.seed, self.position])
        numbers = np.arange(self.position, self.position + events)
        self.position += events
        place = numbers % EVENTS
        return {
            "person": _persons(draw, numbers[place < PERSONS]),
            "auction": _auctions(draw, numbers[(place >= PERSONS) & (place < PERSONS + AUCTIONS)]),
            "bid": _bids(draw, numbers[place >= PERSONS + AUCTIONS]),
        }


def _persons(draw: np.random.Generator, numbers: Numbers) -> pa.Table:
    count = len(numbers)
    names = pc.binary_join_element_wise(
        _any_of(draw, FIRST, count), _any_of(draw, LAST, count), " "
    )
    return pa.table(
        {
            "id": _last_person(numbers),
            "name": names,
            "email_address": pc.replace_substring(names, " ", "@"),
            "credit_card": pa.array(draw.integers(10**15, 10**16, count)).cast(pa.string()),
            "city": _any_of(draw, CITIES, count),
            "state": _any_of(draw, STATES, count),
            "date_time": _times(numbers),
            "extra": _texts(draw, count),
        }
    )


def _auctions(draw: np.random.Generator, numbers: Numbers) -> pa.Table:
    count = len(numbers)
    first = _prices(draw, count)
    seconds = draw.integers(1, 60, count)
    return pa.table(
        {
            "id": _last_auction(numbers),
            "item_name": _texts(draw, count),
            "description": _texts(draw, count),
            "initial_bid": first,
            "reserve": first + _prices(draw, count),
            "date_time": _times(numbers),
            "expires": _times(numbers, seconds),
            # Somebody who came lately, often the very last.
            "seller": np.maximum(0, _last_person(numbers) - _few(draw, count, 20)),
            "category": draw.integers(10, 15, count),
            "extra": _texts(draw, count),
        }
    )


def _bids(draw: np.random.Generator, numbers: Numbers) -> pa.Table:
    count = len(numbers)
    channel_ids = draw.integers(0, 100, count)
    hot = draw.random(count) < 0.5
    plain = pc.binary_join_element_wise("channel-", pa.array(channel_ids).cast(pa.string()), "")
    url = pc.binary_join_element_wise(
        "https://www.nexmark.com/",
        _texts(draw, count, length=3),
        "/",
        _texts(draw, count, length=3),
        "/item.htm?query=1",
        "",
    )
    with_id = pc.binary_join_element_wise(
        url, "&channel_id=", pa.array(channel_ids).cast(pa.string()), ""
    )
    return pa.table(
        {
            "auction": np.maximum(0, _last_auction(numbers) - _few(draw, count, 60)),
            "bidder": np.maximum(0, _last_person(numbers) - _few(draw, count, 40)),
            "price": _prices(draw, count),
            "channel": pc.if_else(pa.array(hot), _any_of(draw, CHANNELS, count), plain),
            # Of those who say their channel by name, the address mostly doesn't say it again.
            "url": pc.if_else(pa.array(hot | (channel_ids < 20)), url, with_id),
            "date_time": _times(numbers),
            "extra": _texts(draw, count),
        }
    )


def _last_person(numbers: Numbers) -> Numbers:
    return numbers // EVENTS


def _last_auction(numbers: Numbers) -> Numbers:
    """The number of the newest auction at each event, which is the event's own if it is one."""
    inside = np.clip(numbers % EVENTS - PERSONS, 0, AUCTIONS - 1)
    return numbers // EVENTS * AUCTIONS + inside


def _times(numbers: Numbers, seconds: Numbers | int = 0) -> pa.Array:
    day, inside = numbers // DAY_EVENTS, numbers % DAY_EVENTS
    milliseconds = day * HOURS_LATER * 3_600_000 + inside * EVENT_MILLISECONDS
    start = int(START.timestamp() * 1000)
    micros = (start + milliseconds + seconds * 1000) * 1000
    return pa.array(micros, pa.timestamp("us", "UTC"))


def _prices(draw: np.random.Generator, count: int) -> Numbers:
    return np.round(10 ** (draw.random(count) * 6) * 100).astype(np.int64)


def _few(draw: np.random.Generator, count: int, below: int) -> Numbers:
    """Numbers of which small ones are frequent."""
    return (draw.random(count) ** 3 * below).astype(np.int64)


def _any_of(draw: np.random.Generator, values: Sequence[str], count: int) -> pa.Array:
    return pa.array(values).take(pa.array(draw.integers(0, len(values), count)))


def _texts(draw: np.random.Generator, count: int, *, length: int = 12) -> pa.Array:
    letters = LETTERS[draw.integers(0, len(LETTERS), (count, length))]
    return pa.array(["".join(row) for row in letters])
