"""The programs of a view: built once for each kind of change, and cached.

Programs depend only on the view's definition, the columns of its stored table, which sources
changed, and whether the changes are in memory. A refresh only binds ranges and rows to them, and
`explain` looks at the very programs that a refresh runs.

Always true: threads and refreshes share programs. Nobody changes their trees.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from sqlglot import exp

from tailrace.lru import LruCache
from tailrace.spark_sql import types
from tailrace.spark_sql.duckdb.engine import ColumnTypes
from tailrace.store.schema import Column
from tailrace.views.definition import Definition
from tailrace.views.incremental import stored_delta
from tailrace.views.incremental.layout import Layout, Way
from tailrace.views.incremental.program import Builder, Program
from tailrace.views.query.parse import TOO_DEEP
from tailrace.views.query.trees import column_of, kept, size
from tailrace.views.refresh.compile import Compiled, compiled, types_of_leaves
from tailrace.views.refresh.needed_rows import NO_LIMIT, StoredLimit, fetch_conditions, values_read

NOT_COMPILED = Compiled()
# Parts of queries that are kept, of all programs together: about half a kilobyte each.
_KEPT = 300_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A program, and what a run needs to know of it."""

    program: Program
    compiled: Compiled  # the queries that can be answered without Spark
    limit: StoredLimit  # the stored rows that it needs
    # By fetch, a condition on the source's fields that holds for all its users.
    conditions: Mapping[str, exp.Expr | None]
    reads_stored: bool


def prepare(
    program: Program,
    compiled: Compiled = NOT_COMPILED,
    limit: StoredLimit = NO_LIMIT,
) -> Prepared:
    """A program, and what follows from it."""
    return Prepared(
        program=program,
        compiled=compiled,
        limit=limit,
        conditions=fetch_conditions(program),
        reads_stored=stored_delta.STORED in program.tables(),
    )


def _size(prepared: Prepared) -> int:
    return sum(size(tree) for tree in prepared.program.trees())


_programs: LruCache[Prepared] = LruCache(_KEPT, _size)


def lookup_columns(definition: Definition, sizes: Mapping[str, int]) -> list[str]:
    """The columns by which stored groups will be looked up, as programs call them.

    First those that a change of the largest source will use: it probably changes most often.
    """
    layout = definition.layout
    if layout is None or layout.way is Way.BAG:
        return []
    found: dict[str, None] = {}
    for source in sorted(sizes, key=lambda name: -sizes[name]):
        programs = Programs(definition, [source], stored=None, results={}, small=True, refused="")
        limit = stored_delta.stored_limit(programs.builder(), layout, {})
        if limit is not None:
            found[limit[0]] = None
    return list(found)


class Programs:
    """The programs of a view for changes of some of its sources."""

    def __init__(
        self,
        definition: Definition,
        changed: Collection[str],
        *,
        stored: Sequence[Column] | None,
        results: Mapping[str, str],
        small: bool,
        refused: str,
    ) -> None:
        """`stored`: the columns of the view's table; None before it is built.

        `results`: the types of averages, which only Spark tells. `small`: changes are in memory.
        `refused`: why nothing is to be answered without Spark.
        """
        assert definition.layout is not None
        self._definition, self._layout = definition, definition.layout
        self._changed, self._small, self._refused = frozenset(changed), small, refused
        self._stored, self._results = None if stored is None else tuple(stored), dict(results)

    @cached_property
    def _key(self) -> tuple[Hashable, ...]:
        results = tuple(self._results.items())
        return (
            self._definition,
            self._changed,
            self._stored,
            results,
            self._small,
            self._refused,
        )

    def change(self) -> Prepared | None:
        """What brings the view to the end of the range; None if nothing can have changed."""
        return self._kept("change", self._change)

    def append(self) -> Prepared:
        """The rows that come, for a change in which nothing goes."""

        def make() -> Prepared:
            b = self.builder()
            query = stored_delta.appended(b, self._layout)
            assert query is not None
            return self._prepared(b.program(query))

        return self._needed("append", make)

    def again(self, groups: ColumnTypes) -> Prepared:
        """The rows of the groups to recompute, whose keys have these types."""

        def make() -> Prepared:
            b = self.builder()
            query = stored_delta.again(b, self._layout, self.types)
            return self._prepared(b.program(query), {stored_delta.GROUPS_AGAIN: groups})

        return self._needed("again", make, *groups.items())

    def difference(self, rows: ColumnTypes) -> Prepared:
        """The difference between all rows, of these types, and the stored ones."""

        def make() -> Prepared:
            names = self._layout.names
            everything = exp.select(*map(column_of, names)).from_(stored_delta.ALL)
            query = stored_delta.full(self._layout, everything, self.types)
            return self._prepared(self.builder().program(query), {stored_delta.ALL: rows})

        return self._needed("difference", make, *rows.items())

    def builder(self) -> Builder:
        """A builder of programs over the sources."""
        sources = self._definition.sources
        keys = {name: source.key for name, source in sources.items() if source.key}
        return Builder(list(sources), self._changed, keys=keys, sideways=self._small)

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The types of stored columns and of averages, by their names in programs."""
        results = {name: types.parse_type(text) for name, text in self._results.items()}
        return results | self._stored_types

    @cached_property
    def _stored_types(self) -> dict[str, pa.DataType]:
        names = names_in_programs(self._layout)
        return {names[column.name]: column.type for column in self._stored or ()}

    # --- build them -------------------------------------------------------------------------

    def _kept(
        self, what: str, make: Callable[[], Prepared | None], *given: Hashable
    ) -> Prepared | None:
        key = (self._key, what, given)
        known = _programs.get(key)
        if known is not None:
            return known
        with kept():
            prepared = make()
        # Not what was too deep: that depends on where the stack was.
        if prepared is None or prepared.compiled.reason == TOO_DEEP:
            return prepared
        return _programs.put(key, prepared)

    def _needed(self, what: str, make: Callable[[], Prepared], *given: Hashable) -> Prepared:
        prepared = self._kept(what, make, *given)
        assert prepared is not None
        return prepared

    def _change(self) -> Prepared | None:
        b, layout = self.builder(), self._layout
        if self._stored is None:
            rows = b.delta(layout.root if layout.groups is None else layout.groups.input)
            return None if rows is None else self._prepared(b.program(rows))
        change = stored_delta.change(b, layout, self.types)
        if change is None:
            return None
        limit = stored_delta.stored_limit(b, layout, self.types)
        program = b.program(change, [limit[1]] if limit else [])
        own = {column.column: column.name for column in layout.columns}
        origins = [(own[c], source) for c, source in stored_delta.stored_origins(layout)]
        stored_limit = StoredLimit(
            keys=None if limit is None else (own[limit[0]], limit[1], "k0"),
            origins=values_read(program, origins),
        )
        return self._prepared(program, limit=stored_limit)

    def _prepared(
        self,
        program: Program,
        more: Mapping[str, ColumnTypes] | None = None,
        limit: StoredLimit = NO_LIMIT,
    ) -> Prepared:
        """`more`: the other relations that it reads."""
        if self._refused:
            return prepare(program, Compiled(reason=self._refused), limit)
        if not self._small:
            return prepare(program, limit=limit)
        columns = {name: table.columns for name, table in self._definition.tables.items()}
        leaves = types_of_leaves(columns, self._stored_types)
        return prepare(program, compiled(program, {**leaves, **(more or {})}), limit)


def names_in_programs(layout: Layout) -> dict[str, str]:
    """The stored table's columns, with their names in programs."""
    return {column.name: column.column for column in layout.columns}
