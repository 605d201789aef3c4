"""What a refresh will do, decided before anything is read.

`refresh` does what is decided here, and `explain` shows it: both ask with what they know of the
view's sources, and of what has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from tailrace.spark_sql import types
from tailrace.store.changes import Feed, is_small
from tailrace.store.runtime import Runtime
from tailrace.store.schema import Column, TableInfo
from tailrace.views.definition import Definition, Input
from tailrace.views.incremental import stored_delta
from tailrace.views.incremental.program import Builder, Program
from tailrace.views.query.trees import kept
from tailrace.views.refresh.choose import Choice, Facts, Strategy, choose
from tailrace.views.refresh.compiled import Compiled, compiled, leaves_of
from tailrace.views.refresh.execution import StoredLimit
from tailrace.views.refresh.session import has_known_meaning

# What a view's job remembers: that its next run is to compute everything, and why it always is.
FULL = "full"
REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class Source:
    """What is known of a source before it is read."""

    rows: Callable[[], int]  # at the end of the range
    table: TableInfo | None  # with the columns that the view uses; None: a view that is not built
    key: tuple[str, ...]  # names of its primary key's columns
    change: Feed | None  # None: nothing has changed


def key_of(given: Input) -> tuple[str, ...]:
    """The names of an input's primary key."""
    table = given.table
    return () if table is None else tuple(column.name for column in table.key_columns)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A program that brings the view to the end of the range, and how it is run."""

    program: Program
    limit: StoredLimit
    compiled: Compiled


@dataclass(frozen=True, kw_only=True)
class RefreshPlan:
    """What a refresh will do."""

    choice: Choice
    facts: Facts
    small: bool  # the changes are brought into memory
    spark: str  # why even a small change needs Spark; empty if it does not

    @property
    def strategy(self) -> Strategy:
        return self.choice.strategy

    @property
    def on_spark(self) -> bool:
        """Whether Spark does the work."""
        return self.strategy is Strategy.FULL or not self.facts.in_memory


class Planner:
    """Plans one refresh of a view."""

    def __init__(
        self,
        runtime: Runtime,
        definition: Definition,
        sources: Mapping[str, Source],
        memory: Mapping[str, Any],
        stored: Sequence[Column] | None,
    ) -> None:
        """`sources` by the stored table's name, in the order of their numbers in programs.

        `memory` is what the view's job remembers, and `stored` its table's columns, None if it has
        not been built.
        """
        self._runtime, self._definition, self._memory = runtime, definition, memory
        self.sources, self._stored = sources, stored

    def plan(
        self, policy: str, *, rebuild: bool = False, moved: bool = False, on_spark: bool = False
    ) -> RefreshPlan:
        """What to do: with `on_spark` not in memory, because that was tried.

        `rebuild`: the changes since the watermark are not kept any more; `moved`: a function of
        the moment says something else.
        """
        if self._memory.get(FULL):
            policy = "full"
        changes = {name: s.change for name, s in self.sources.items() if s.change is not None}
        group_rows = self._runtime.settings.row_group_rows
        facts = Facts(
            sizes=self.sizes,
            changes={name: change.rows for name, change in changes.items()},
            decoded=sum(change.rows_read(group_rows) for change in changes.values()),
            inserts_only=bool(changes) and all(c.only_inserts for c in changes.values()),
            in_memory=self.is_small and not self.needs_spark and not on_spark,
            history=self._memory.get("runs", {}),
            rebuild=rebuild,
            moved=moved,
            refused=self._memory.get(REFUSED, ""),
        )
        choice = choose(self._definition, facts, policy)
        small = self.is_small and (facts.in_memory or bool(self.needs_spark))
        return RefreshPlan(choice=choice, facts=facts, small=small, spark=self.needs_spark)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The rows of each source."""
        return {name: source.rows() for name, source in self.sources.items()}

    # --- here or on Spark -------------------------------------------------------------------

    def fits(self, rows: int) -> bool:
        """Whether the changes can be in memory, by somebody who takes so many rows."""
        changes = (source.change for source in self.sources.values())
        return all(is_small(self._runtime, c, rows) for c in changes if c is not None)

    @cached_property
    def is_small(self) -> bool:
        """Whether changes are brought into memory.

        More are if Spark is not needed: to hand them over would take longer than to let it read
        them itself.
        """
        settings = self._runtime.settings
        most = max(settings.memory_rows, settings.local_rows)
        if self._definition.layout is None or not self.fits(most):
            return False
        return not self.needs_spark or self.fits(settings.local_rows)

    @cached_property
    def needs_spark(self) -> str:
        """Why changes in memory need Spark all the same; empty if they do not."""
        prepared = self.small_program
        return "" if prepared is None else prepared.compiled.reason

    # --- programs ---------------------------------------------------------------------------

    @property
    def changed(self) -> list[str]:
        """The names of the sources that changed."""
        return [name for name, source in self.sources.items() if source.change is not None]

    def builder(self, *, small: bool, changed: Sequence[str] | None = None) -> Builder:
        """Builds programs over the sources, some of which changed."""
        keys = {name: list(source.key) for name, source in self.sources.items() if source.key}
        which = self.changed if changed is None else changed
        return Builder(list(self.sources), which, keys=keys, sideways=small)

    @cached_property
    def small_program(self) -> Prepared | None:
        """For changes in memory; None if nothing of the result can have changed."""
        return self.program(small=True)

    def program(self, *, small: bool) -> Prepared | None:
        """What brings the view to the end of the range; None if nothing can have changed."""
        known = all(source.table is not None for source in self.sources.values())
        if self._definition.layout is None or not known:
            return None
        with kept():
            return self._program(small=small)

    def _program(self, *, small: bool) -> Prepared | None:
        layout = self._definition.layout
        assert layout is not None
        # Without a change: what one in any source would take.
        b = self.builder(small=small, changed=self.changed or list(self.sources))
        if self._stored is None:
            rows = b.delta(layout.root if layout.groups is None else layout.groups.input)
            if rows is None:
                return None
            program = b.program(rows)
            return Prepared(program=program, limit=StoredLimit(), compiled=self.compiled(program))
        change = stored_delta.change(b, layout, self.types)
        if change is None:
            return None
        limit = stored_delta.stored_limit(b, layout, self.types)
        program = b.program(change, [limit[1]] if limit else [])
        own = {column.column: column.name for column in layout.columns}
        stored_limit = StoredLimit(
            keys=None if limit is None else (own[limit[0]], limit[1], "k0"),
            origins=tuple((own[c], source) for c, source in stored_delta.stored_origins(layout)),
        )
        found = self.compiled(program) if small else Compiled()
        return Prepared(program=program, limit=stored_limit, compiled=found)

    def compiled(
        self, program: Program, more: Mapping[str, dict[str, pa.DataType]] | None = None
    ) -> Compiled:
        """What can be answered of a program without Spark. `more`: other relations it reads."""
        if not self._runtime.settings.memory_rows:
            return Compiled(reason="the setting memory_rows is 0")
        if not has_known_meaning(self._runtime.spark.session):
            return Compiled(reason="the session has its own rules for decimals")
        columns = {
            number: source.table.columns
            for number, source in enumerate(self.sources.values())
            if source.table is not None
        }
        stored = [(self.stored_names[c.name], c.type) for c in self._stored or ()]
        return compiled(program, {**leaves_of(columns, stored), **(more or {})})

    @cached_property
    def types(self) -> dict[str, pa.DataType]:
        """The types of what is stored, and of averages, by what programs call them."""
        stored = {self.stored_names[c.name]: c.type for c in self._stored or ()}
        known = self._memory.get("types", {})
        return {name: types.parse_type(text) for name, text in known.items()} | stored

    @cached_property
    def stored_names(self) -> dict[str, str]:
        """The stored table's columns, and what programs call them."""
        layout = self._definition.layout
        if layout is not None:
            return {column.name: column.column for column in layout.columns}
        return {name: f"c{n}" for n, name in enumerate(self._memory.get("plain", []))}
