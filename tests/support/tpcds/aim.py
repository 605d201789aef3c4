"""Rows that the queries find: they get the values that a query asks for together.

A row of a fact also refers to rows that have such values: to an item of the category that the
query is about, a day of its month, and a customer who lives where it says.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tests.support.tpcds.keys import DIMENSIONS, KEYS, Row, references

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.support.tpcds.wishes import Wish

# The share of sales that are made for some query, and of orders whose lines are so by themselves.
AIMED, LINES = 0.5, 0.6
# Rows that are looked at for one that a query finds.
LOOK = 300


class Aim:
    """The wishes, and the rows of dimensions that meet them; dimensions are learnt one by one."""

    def __init__(self, asked: list[Wish]) -> None:
        self._asked = asked
        self._known: dict[str, list[tuple[str, str]]] = {}
        # By table, for each wish that asks something of its rows, the keys of those that meet it.
        self._keys: dict[str, dict[int, dict[Any, None]]] = {}

    def learn(self, name: str, rows: list[Row]) -> None:
        """Take note of the rows of a dimension."""
        if name in DIMENSIONS:
            (key,) = KEYS[name]
            self._keys[name] = {
                number: {row[key]: None for row in rows if self._meets(name, row, number)}
                for number in self._wishes(name, rows[0])
            }

    def dimension(self, name: str, rows: list[Row], random: Random) -> None:
        """Let each wish that asks something of a dimension be met by some row, if it can be."""
        wishes = self._wishes(name, rows[0])
        for _ in range(3):  # what one is given may take what another had
            unmet = [n for n in wishes if not any(self._meets(name, row, n) for row in rows)]
            for number in random.sample(unmet, len(unmet)):
                self._grant(name, random.choice(rows), number, f"{random.random()}", KEYS[name])

    def fact(self, name: str, row: Row) -> None:
        """Let a row be what some query asks for, together with others of its order.

        A return becomes what its sale becomes.
        """
        channel = name.partition("_")[0]
        order = row[KEYS[name][-1]] if name != "inventory" else tuple(row.values())
        random = Random(f"{channel} {order}")
        # A whole order, or each of its lines for itself.
        seed = f"{channel} {order}"
        if random.random() < LINES:
            seed = f"{seed} {row[KEYS[name][0]]}"
            random = Random(seed)
        if random.random() < AIMED:
            sold = {name, f"{channel}_sales", f"{channel}_returns"}
            wishes = [n for n, wish in enumerate(self._asked) if not sold.isdisjoint(wish.tables)]
            self._grant(name, row, random.choice(wishes), seed, ())

    def row(self, name: str, row: Row, random: Random, kept: Collection[str]) -> None:
        """Let a row be what some query asks for; some columns keep their values."""
        wishes = self._wishes(name, row)
        if wishes:
            self._grant(name, row, random.choice(wishes), f"{random.random()}", kept)

    def pick(self, name: str, rows: list[Row], random: Random) -> Row:
        """A row that some query finds, if a few of them find any."""
        wishes = self._wishes(name, rows[0])
        some = random.sample(rows, min(len(rows), LOOK))
        for number in random.sample(wishes, min(len(wishes), 5)):
            found = [row for row in some if self._meets(name, row, number)]
            if found:
                return random.choice(found)
        return random.choice(rows)

    def _references(self, name: str, row: Row) -> list[tuple[str, str]]:
        if name not in self._known:
            self._known[name] = list(references(name, row))
        return self._known[name]

    def _wishes(self, name: str, row: Row) -> list[int]:
        """The wishes that ask something of a table's rows or of what they refer to."""
        asked = {name, *(target for _, target in self._references(name, row))}
        return [
            number
            for number, wish in enumerate(self._asked)
            if name in wish.tables and not asked.isdisjoint(wish.values)
        ]

    def _meets(self, name: str, row: Row, number: int) -> bool:
        values = self._asked[number].values.get(name, {})
        if any(row[column] != value for column, value in values.items()):
            return False
        met: dict[str, bool] = {}
        for column, target in self._references(name, row):
            keys = self._keys.get(target, {}).get(number)
            if keys is not None:
                met[target] = met.get(target, False) or row[column] in keys
        return all(met.values())

    def _grant(self, name: str, row: Row, number: int, seed: str, kept: Collection[str]) -> None:
        values = self._asked[number].values.get(name, {})
        row.update({column: value for column, value in values.items() if column not in kept})
        line = row.get(KEYS[name][0])
        dates = []
        for column, target in self._references(name, row):
            keys = list(self._keys.get(target, {}).get(number, ()))
            if not keys or column in kept:
                continue
            if target == "date_dim":
                dates.append(column)
            elif target != "item":
                row[column] = Random(f"{seed} {target}").choice(keys)
            elif (chosen := Random(f"{seed} {line}")).random() < 0.5:
                row[column] = chosen.choice(keys)
        if dates and row[dates[0]] is not None:
            # All dates of a row move together.
            days = list(self._keys["date_dim"][number])
            moved = Random(f"{seed} {name}").choice(days) - row[dates[0]]
            row.update({date: row[date] + moved for date in dates if row[date] is not None})
