"""A random history of a lake, kept twice: by Tailrace, and by plain Python lists.

The model knows columns by an identity that outlives renames, so that it can say what a row of an
old snapshot looks like under the columns of a newer one.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.oracle import values
from tests.support.compaction import compact

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence
    from random import Random

    import tailrace
    from tailrace.store.files import DataFile

_NAMES = ("n", "Größe", "two words", "select", "a.b", 'q"uote', "tick`", "名前", "x")


@dataclass
class ModelColumn:
    """A column: its identity stays, its name and type may change."""

    identity: int
    name: str
    kind: str


@dataclass
class ModelTable:
    """A table as lists of dicts; rows are keyed by the identity of the column."""

    columns: list[ModelColumn]
    key: list[int]
    rows: list[dict[int, Any]] = field(default_factory=list)
    identities: int = 0

    def named(self, columns: list[ModelColumn] | None = None) -> list[values.Row]:
        """The rows under the names of these columns, or of its own."""
        shown = self.columns if columns is None else columns
        return [{c.name: row.get(c.identity) for c in shown} for row in self.rows]

    def key_of(self, row: dict[int, Any]) -> tuple[Any, ...]:
        return tuple(values.comparable(row[identity]) for identity in self.key)

    def bag(self, columns: list[ModelColumn] | None = None) -> Counter[Any]:
        """The rows as a bag."""
        return values.bag(self.named(columns))


class History:
    """Does random things to a lake and to the model."""

    def __init__(self, lake: tailrace.Lake, random: Random, *, spark: bool = True) -> None:
        self.lake, self.random, self.spark = lake, random, spark
        self.now: dict[str, ModelTable] = {}
        self.at: dict[int, dict[str, ModelTable]] = {}
        self._names = 0
        self._record()

    def _record(self) -> None:
        self.at[self.lake.snapshot] = copy.deepcopy(self.now)

    # --- steps ------------------------------------------------------------------------------

    def create(self, *, keyed: bool | None = None) -> str:
        random = self.random
        self._names += 1
        name = f"main.`t {self._names} ü`"
        model = ModelTable(columns=[], key=[])
        if keyed if keyed is not None else random.random() < 0.6:
            for kind in random.sample(values.KEY_TYPES, random.choice([1, 1, 2])):
                model.key.append(self._add(model, f"k{len(model.key)}", kind).identity)
        for number, kind in enumerate(random.sample(sorted(values.GENERATORS), 4)):
            self._add(model, f"c{number}", kind)
        self.lake.create_table(
            name,
            {column.name: column.kind for column in model.columns},
            primary_key=[c.name for c in model.columns if c.identity in model.key],
        )
        self.now[name] = model
        self._record()
        return name

    def write(self, name: str | None = None) -> None:
        """One write in a transaction of its own."""
        name = name or self.random.choice(sorted(self.now))
        self._write(self.lake.table(name), self.now[name])
        self._record()

    def transaction(self) -> None:
        """Several writes to several tables; now and then it is rolled back."""
        before = copy.deepcopy(self.now)
        txn = self.lake.transaction()
        for _ in range(self.random.randint(2, 4)):
            if self.random.random() < 0.2:
                # What it has read or deleted is elsewhere when it commits.
                self._compact(sorted(before))
                self.at[self.lake.snapshot] = copy.deepcopy(before)
            name = self.random.choice(sorted(self.now))
            self._write(txn.table(name), self.now[name])
            # A transaction sees its own writes.
            seen = values.bag(txn.table(name).to_arrow().to_pylist())
            assert seen == self.now[name].bag()
        if self.random.random() < 0.25:
            txn.rollback()
            self.now = before
        else:
            txn.commit()
        self._record()

    def alter(self, name: str | None = None) -> None:
        random = self.random
        name = name or random.choice(sorted(self.now))
        table, model = self.lake.table(name), self.now[name]
        column = random.choice(model.columns)
        what = random.choice(["add", "add", "rename", "rename", "drop", "widen"])
        if what == "drop" and (column.identity in model.key or len(model.columns) == 1):
            what = "rename"
        if what == "widen" and column.kind not in values.WIDER:
            what = "add"
        fresh = [n for n in _NAMES if n not in {c.name for c in model.columns}]
        if what in ("add", "rename") and not fresh:
            return
        if what == "add":
            added = self._add(model, random.choice(fresh), random.choice(sorted(values.GENERATORS)))
            table.add_column(added.name, added.kind)
        elif what == "rename":
            old, column.name = column.name, random.choice(fresh)
            table.rename_column(old, column.name)
        elif what == "drop":
            model.columns.remove(column)
            table.drop_column(column.name)
        else:
            column.kind = values.WIDER[column.kind]
            table.widen_column(column.name, column.kind)
        self._record()

    def compact(self) -> None:
        """Some files of a table become others, while rows of it may be written and deleted."""
        writes = self.random.random() < 0.4
        self._compact(sorted(self.now), self.write if writes else lambda _name: None)
        self._record()

    def _compact(
        self, names: list[str], meanwhile: Callable[[str], None] = lambda _name: None
    ) -> None:
        name = self.random.choice(names)

        def some(files: Sequence[DataFile]) -> list[DataFile]:
            return self.random.sample(files, self.random.randint(0, len(files)))

        compact(self.lake, name, some, lambda: meanwhile(name))

    def drop(self) -> None:
        name = self.random.choice(sorted(self.now))
        del self.now[name]
        self.lake.drop_table(name)
        self._record()

    def step(self) -> None:
        """Something."""
        steps = [self.write] * 8 + [self.transaction] * 3 + [self.alter] * 2 + [self.compact] * 3
        self.random.choice(steps)()

    # --- inside -----------------------------------------------------------------------------

    def _add(self, model: ModelTable, name: str, kind: str) -> ModelColumn:
        model.identities += 1
        model.columns.append(ModelColumn(identity=model.identities, name=name, kind=kind))
        return model.columns[-1]

    def _rows(self, model: ModelTable, *, new_keys: bool) -> list[dict[int, Any]]:
        """Random rows, no key twice; with `new_keys`, no key that exists."""
        taken = {model.key_of(row) for row in model.rows} if new_keys else set()
        rows = []
        for _ in range(self.random.randint(0, 8)):
            row = {
                c.identity: values.key_value(self.random, c.kind)
                if c.identity in model.key
                else values.value(self.random, c.kind)
                for c in model.columns
            }
            if model.key:
                if model.key_of(row) in taken:
                    continue
                taken.add(model.key_of(row))
            rows.append(row)
        return rows

    def _write(self, table: tailrace.Table, model: ModelTable) -> None:
        random = self.random
        what = random.choice(["append", "append", "upsert", "upsert", "delete", "predicate"])
        if what == "upsert" and model.key:
            rows = self._rows(model, new_keys=False)
            # Some of them as they are: an update that changes nothing.
            known = {model.key_of(row) for row in rows}
            rows += [
                r
                for r in random.sample(model.rows, min(2, len(model.rows)))
                if model.key_of(r) not in known
            ]
            table.upsert(self._form(model, rows))
            new = {model.key_of(row) for row in rows}
            model.rows = [r for r in model.rows if model.key_of(r) not in new] + rows
        elif what == "delete" and model.key:
            gone = random.sample(model.rows, random.randint(0, len(model.rows)))
            keys = [
                {c.name: r[c.identity] for c in model.columns if c.identity in model.key}
                for r in gone
            ]
            table.delete(keys)
            model.rows = [row for row in model.rows if row not in gone]
        elif what == "predicate" and self.spark:
            self._delete_where(table, model)
        else:
            rows = self._rows(model, new_keys=True)
            table.append(self._form(model, rows))
            model.rows += rows

    def _delete_where(self, table: tailrace.Table, model: ModelTable) -> None:
        column = self.random.choice(model.columns)
        quoted = "`" + column.name.replace("`", "``") + "`"
        if column.kind in ("tinyint", "smallint", "int", "bigint"):
            table.delete(f"{quoted} >= 1")
            model.rows = [r for r in model.rows if not (r.get(column.identity) or 0) >= 1]
        else:
            table.delete(f"{quoted} IS NULL")
            model.rows = [r for r in model.rows if r.get(column.identity) is not None]

    def _form(self, model: ModelTable, rows: list[dict[int, Any]]) -> Any:
        """Rows as a user might give them: dicts, Arrow or, seldom, a Spark DataFrame."""
        named = [{c.name: row.get(c.identity) for c in model.columns} for row in rows]
        form = self.random.choice(["dicts", "arrow", "arrow", "spark"])
        if form == "dicts":
            return named
        from tailrace.spark_sql.types import parse_type, spark_schema

        schema = pa.schema([(c.name, parse_type(c.kind)) for c in model.columns])
        table = pa.Table.from_pylist(named, schema)
        if form == "spark" and self.spark and self.random.random() < 0.3:
            return self.lake.spark.createDataFrame(table, spark_schema(schema))
        return table
