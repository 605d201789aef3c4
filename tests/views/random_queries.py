"""Random queries over the tables of `engine`, by a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

# Numbers whose sums are exact and fit. Of the largest ("big") and of floats ("real") only equality
# is asked, and of decimals without a digit before the point ("fine"), which DuckDB compares with no
# other, and of maps, nothing.
_NUMBERS = ("int", "dec")


@dataclass(frozen=True)
class Relation:
    """Something to select from, and the kinds of its columns: numbers, texts, maps and so on."""

    sql: str
    columns: dict[str, str]

    def of(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.columns.items() if kind in kinds]


_BASE = (
    Relation("t", {"id": "int", "a": "int", "b": "str", "v": "dec"}),
    Relation("u", {"id": "int", "a": "int", "c": "int", "w": "int", "s": "str"}),
    Relation("r", {"a": "int", "b": "str", "n": "int"}),
    Relation(
        "e",
        {"id": "int", "h": "int", "i": "int", "j": "int", "k": "big", "d": "dec", "f": "fine"}
        | {"x": "real", "y": "real", "m": "map"},
    ),
)


class Queries:
    """Makes queries."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names = 0

    def query(self, depth: int = 2) -> Relation:
        """A query as text, without parentheses around it."""
        shapes = [
            self._filter, self._join, self._outer, self._exists, self._aggregate, self._distinct,
            self._set, self._window, self._scalar, self._join_groups, self._whole, self._sets,
            self._wide,
        ]  # fmt: skip
        return self._random.choice(shapes)(depth)

    def _relation(self, depth: int) -> tuple[str, Relation, str]:
        """A relation for a FROM, with an alias that no other has."""
        self._names += 1
        alias = f"q{self._names}"
        if depth <= 0 or self._random.random() < 0.55:
            base = self._random.choice(_BASE)
            return f"{base.sql} AS {alias}", base, alias
        inner = self.query(depth - 1)
        return f"({inner.sql}) AS {alias}", inner, alias

    def _condition(self, alias: str, relation: Relation) -> str:
        random = self._random
        numbers, texts = relation.of(*_NUMBERS), relation.of("str")
        kind = random.randrange(5)
        if texts and kind == 0:
            return f"{alias}.{random.choice(texts)} {random.choice(['=', '<>'])} 'x'"
        if texts and kind == 1:
            return f"{alias}.{random.choice(texts)} IN ('x', 'z')"
        if not numbers:
            return f"{alias}.{next(iter(relation.columns))} IS NOT NULL"
        name = f"{alias}.{random.choice(numbers)}"
        if kind == 2:
            return f"{name} IS NULL"
        if kind == 3:
            return f"({name} > 1 OR {name} < 0)"
        return f"{name} {random.choice(['<', '<=', '>', '>='])} {random.randint(-1, 3)}"

    def _where(self, alias: str, relation: Relation) -> str:
        return f" WHERE {self._condition(alias, relation)}" if self._random.random() < 0.5 else ""

    def _some(
        self, alias: str, relation: Relation, prefix: str, most: int = 3
    ) -> dict[str, tuple[str, str]]:
        """Columns to show: by new name, the expression and its kind."""
        names = self._random.sample(
            list(relation.columns), min(len(relation.columns), self._random.randint(1, most))
        )
        return {
            f"{prefix}{n}": (f"{alias}.{name}", relation.columns[name])
            for n, name in enumerate(names)
        }

    def _select(
        self, items: dict[str, tuple[str, str]], rest: str, word: str = "SELECT"
    ) -> Relation:
        shown = ", ".join(f"{value} AS {name}" for name, (value, _) in items.items())
        return Relation(f"{word} {shown} {rest}", {name: kind for name, (_, kind) in items.items()})

    def _filter(self, depth: int) -> Relation:
        text, relation, alias = self._relation(depth)
        items = self._some(alias, relation, "f")
        numbers = relation.of("int")
        if numbers and self._random.random() < 0.4:
            items["f9"] = (
                f"CASE WHEN {alias}.{numbers[0]} > 1 THEN 1 ELSE {alias}.{numbers[-1]} END",
                "int",
            )
        return self._select(items, f"FROM {text}{self._where(alias, relation)}")

    def _wide(self, depth: int) -> Relation:
        """Many columns, or many functions of groups."""
        text, relation, alias = self._relation(depth)
        names = list(relation.columns)
        many = [self._random.choice(names) for _ in range(30)]
        if self._random.random() < 0.5:
            items = {f"c{n}": (f"{alias}.{c}", relation.columns[c]) for n, c in enumerate(many)}
            word = self._random.choice(["SELECT", "SELECT DISTINCT"])
            return self._select(items, f"FROM {text}", word)
        key = many[0]
        calls = {"k": (f"{alias}.{key}", relation.columns[key])}
        for n, name in enumerate(many[1:]):
            kind = relation.columns[name]
            words = ["count"]
            if kind not in ("map", "bool"):
                words += ["min", "max", *(["sum"] * (kind not in ("real", "str", "big")))]
            word = self._random.choice(words)
            calls[f"c{n}"] = (f"{word}({alias}.{name})", "int" if word == "count" else kind)
        return self._select(calls, f"FROM {text} GROUP BY {alias}.{key}")

    def _pair(self, depth: int) -> tuple[str, str, Relation, Relation, str, str, str] | None:
        left_text, left, one = self._relation(depth)
        right_text, right, other = self._relation(depth - 1)
        for kind in self._random.sample(["int", "str", "real", "dec", "big"], 5):
            if left.of(kind) and right.of(kind):
                pick = self._random.choice
                on = f"{one}.{pick(left.of(kind))} = {other}.{pick(right.of(kind))}"
                break
        else:
            return None
        if left.of("str") and right.of("str") and self._random.random() < 0.2:
            on += f" AND {one}.{left.of('str')[0]} = {other}.{right.of('str')[0]}"
        if left.of(*_NUMBERS) and right.of(*_NUMBERS) and self._random.random() < 0.3:
            on += f" AND {one}.{left.of(*_NUMBERS)[-1]} < {other}.{right.of(*_NUMBERS)[-1]}"
        return left_text, right_text, left, right, one, other, on

    def _join(self, depth: int) -> Relation:
        pair = self._pair(depth)
        if pair is None:
            return self._filter(depth)
        left_text, right_text, left, right, one, other, on = pair
        items = self._some(one, left, "l", 2) | self._some(other, right, "r", 2)
        third = ""
        if self._random.random() < 0.3 and left.of("int"):
            self._names += 1
            base = self._random.choice(_BASE[:3])
            name = f"q{self._names}"
            third = f" JOIN {base.sql} AS {name} ON {name}.a = {one}.{left.of('int')[0]}"
            items["j9"] = (f"{name}.a", "int")
        rest = f"FROM {left_text} JOIN {right_text} ON {on}{third}{self._where(one, left)}"
        return self._select(items, rest)

    def _outer(self, depth: int) -> Relation:
        pair = self._pair(depth)
        if pair is None:
            return self._filter(depth)
        left_text, right_text, left, right, one, other, on = pair
        side = self._random.choice(["LEFT", "LEFT", "RIGHT", "FULL"])
        items = self._some(one, left, "l", 2) | self._some(other, right, "r", 2)
        where = self._where(one, left) if side == "LEFT" else ""
        return self._select(items, f"FROM {left_text} {side} JOIN {right_text} ON {on}{where}")

    def _exists(self, depth: int) -> Relation:
        pair = self._pair(depth)
        if pair is None:
            return self._filter(depth)
        left_text, right_text, left, right, one, other, on = pair
        word = "NOT " if self._random.random() < 0.5 else ""
        items = self._some(one, left, "e")
        if self._random.random() < 0.5 or not (left.of("int") and right.of("int")):
            test = f"{word}EXISTS (SELECT 1 FROM {right_text} WHERE {on})"
        else:
            inner = f"SELECT {other}.{right.of('int')[-1]} FROM {right_text}"
            inner += self._where(other, right)
            test = f"{one}.{left.of('int')[0]} {word}IN ({inner})"
        return self._select(items, f"FROM {left_text} WHERE {test}")

    def _calls(self, alias: str, relation: Relation) -> dict[str, tuple[str, str]]:
        random = self._random
        calls: dict[str, tuple[str, str]] = {"n": ("count(*)", "int")}
        for place in range(random.randint(0, 2)):
            numbers = relation.of(*_NUMBERS)
            if not numbers:
                break
            name = random.choice(numbers)
            word = random.choice(["sum", "min", "max", "count", "sum", "count(distinct"])
            call = f"{word}({alias}.{name})" if "(" not in word else f"{word} {alias}.{name})"
            kind = "int" if word.startswith("count") else relation.columns[name]
            calls[f"g{place}"] = (call, kind)
        return calls

    def _aggregate(self, depth: int) -> Relation:
        text, relation, alias = self._relation(depth)
        keys = self._some(alias, relation, "k", 2)
        calls = self._calls(alias, relation)
        having = " HAVING count(*) > 1" if self._random.random() < 0.3 else ""
        group = ", ".join(value for value, _ in keys.values())
        rest = f"FROM {text}{self._where(alias, relation)} GROUP BY {group}{having}"
        return self._select(keys | calls, rest)

    def _sets(self, depth: int) -> Relation:
        text, relation, alias = self._relation(depth)
        keys = self._some(alias, relation, "k", 2)
        calls = self._calls(alias, relation)
        names = [value for value, _ in keys.values()]
        sets = ", ".join(f"({name})" for name in names)
        # Without the empty set: over no rows DuckDB gives a row for it, and Spark none.
        rest = f"FROM {text}{self._where(alias, relation)} GROUP BY GROUPING SETS ({sets})"
        if len(set(names)) < len(names):
            return self._aggregate(depth)
        return self._select(keys | calls, rest)

    def _whole(self, depth: int) -> Relation:
        text, relation, alias = self._relation(depth)
        return self._select(
            self._calls(alias, relation), f"FROM {text}{self._where(alias, relation)}"
        )

    def _distinct(self, depth: int) -> Relation:
        text, relation, alias = self._relation(depth)
        return self._select(self._some(alias, relation, "d"), f"FROM {text}", "SELECT DISTINCT")

    def _set(self, depth: int) -> Relation:
        left_text, left, one = self._relation(depth - 1)
        right_text, right, other = self._relation(depth - 1)
        kinds = [k for k in ("int", "str", "real") if left.of(k) and right.of(k)]
        if not kinds:
            return self._filter(depth)
        word = self._random.choice(
            ["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"]
        )
        pick = self._random.choice
        shown = {f"s{n}": k for n, k in enumerate(kinds)}
        first = ", ".join(f"{one}.{pick(left.of(k))} AS {n}" for n, k in shown.items())
        second = ", ".join(f"{other}.{pick(right.of(k))} AS {n}" for n, k in shown.items())
        where = self._where(one, left)
        sql = f"SELECT {first} FROM {left_text}{where} {word} SELECT {second} FROM {right_text}"
        return Relation(sql, shown)

    def _window(self, depth: int) -> Relation:
        text, relation, alias = self._relation(depth)
        items = self._some(alias, relation, "w", 2)
        key = f"{alias}.{self._random.choice(list(relation.columns))}"
        numbers = relation.of(*_NUMBERS)
        call = "count(*)"
        if numbers and self._random.random() < 0.7:
            word = self._random.choice(["sum", "max", "min"])
            call = f"{word}({alias}.{self._random.choice(numbers)})"
        order = ""
        if numbers and self._random.random() < 0.3:
            call, order = "rank()", f" ORDER BY {alias}.{numbers[0]}"
        items["w9"] = (f"{call} OVER (PARTITION BY {key}{order})", "int")
        return self._select(items, f"FROM {text}{self._where(alias, relation)}")

    def _scalar(self, depth: int) -> Relation:
        pair = self._pair(depth)
        if pair is None or " AND " in pair[6]:
            return self._filter(depth)
        left_text, right_text, left, right, one, other, on = pair
        numbers = right.of("int")
        mine = left.of("int")
        if not numbers or not mine:
            return self._filter(depth)
        items = self._some(one, left, "c", 2)
        word = self._random.choice(["max", "sum", "count"])
        inner = f"(SELECT {word}({other}.{numbers[0]}) FROM {right_text} WHERE {on})"
        place = self._random.randrange(3)
        if place < 2:
            test = f"{one}.{mine[0]} < {inner}"
            items["c9"] = (inner, "int") if place == 0 else (test, "bool")
            return self._select(items, f"FROM {left_text}")
        return self._select(items, f"FROM {left_text} WHERE {one}.{mine[0]} < {inner}")

    def _join_groups(self, depth: int) -> Relation:
        text, relation, alias = self._relation(depth - 1)
        keys = relation.of("int")
        if not keys:
            return self._filter(depth)
        self._names += 1
        name = f"q{self._names}"
        groups = (
            f"(SELECT {alias}.{keys[0]} AS k, count(*) AS n FROM {text} GROUP BY {alias}.{keys[0]})"
        )
        base = self._random.choice(_BASE[:3])
        items = self._some("b", base, "b", 2) | {"n": (f"{name}.n", "int")}
        return self._select(
            items, f"FROM {base.sql} AS b JOIN {groups} AS {name} ON b.a = {name}.k"
        )
