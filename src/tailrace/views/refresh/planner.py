"""Decides what a refresh will do, before anything is read.

`refresh` does what is decided here, and `explain` shows it: both pass what they know of the view's
sources and changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tailrace.store.changes import Feed
from tailrace.store.reader.budget import Budget
from tailrace.store.runtime import Runtime
from tailrace.store.schema import Column
from tailrace.views.definition import Definition
from tailrace.views.refresh.choose import Choice, Facts, Strategy, choose
from tailrace.views.refresh.programs import Prepared, Programs, names_in_programs
from tailrace.views.refresh.session import has_known_meaning

# What a view's job remembers: that its next run has to be a full one; why all have to be.
FULL = "full"
REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class Source:
    """What is known of a source before it is read."""

    rows: Callable[[], int]  # at the end of the range
    change: Feed | None  # None: nothing has changed


@dataclass(frozen=True, kw_only=True)
class RefreshPlan:
    """What a refresh will do."""

    choice: Choice
    facts: Facts
    small: bool  # the changes are read into memory
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
        """What to do; with `on_spark` not in memory, since that failed.

        `rebuild`: the changes since the watermark are no longer kept; `moved`: a function of time
        has another value by now.
        """
        if self._memory.get(FULL):
            policy = "full"
        changes = {name: s.change for name, s in self.sources.items() if s.change is not None}
        settings = self._runtime.settings
        facts = Facts(
            sizes=self.sizes,
            changes={name: change.rows for name, change in changes.items()},
            decoded=sum(change.cost(settings).decoded for change in changes.values()),
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
        """Whether the changes fit into memory, if it may hold this many rows."""
        changes = (source.change for source in self.sources.values())
        settings = self._runtime.settings
        budget = Budget.of(settings).for_rows(rows)
        return all(budget.covers(c.cost(settings)) for c in changes if c is not None)

    @cached_property
    def is_small(self) -> bool:
        """Whether changes are read into memory.

        The limit is lower if Spark is needed: beyond it, handing them over would take longer than
        letting Spark read them.
        """
        settings = self._runtime.settings
        most = max(settings.memory_rows, settings.local_rows)
        if self._definition.layout is None or not self.fits(most):
            return False
        return not self.needs_spark or self.fits(settings.local_rows)

    # --- programs ---------------------------------------------------------------------------

    @cached_property
    def needs_spark(self) -> str:
        """Why even changes in memory need Spark; empty if they do not."""
        change = self.change(small=True)
        return "" if change is None else change.compiled.reason

    def change(self, *, small: bool) -> Prepared | None:
        """What brings the view to the end of the range; None if nothing can have changed."""
        is_known = len(self._definition.tables) == len(self._definition.sources)
        if self._definition.layout is None or not is_known:
            return None
        return self.programs(small=small).change()

    def programs(self, *, small: bool) -> Programs:
        """The programs for what has changed."""
        changed = [name for name, source in self.sources.items() if source.change is not None]
        return Programs(
            self._definition,
            # Without any: as if every source had changed.
            changed or list(self.sources),
            stored=self._stored,
            results=self._memory.get("types", {}),
            small=small,
            refused=self._refused if small else "",
        )

    @cached_property
    def _refused(self) -> str:
        """Why nothing is answered without Spark; empty if something may be."""
        if not self._runtime.settings.memory_rows:
            return "the setting memory_rows is 0"
        if not has_known_meaning(self._runtime.spark.session):
            return "the session has its own rules for decimals"
        return ""

    @cached_property
    def stored_names(self) -> dict[str, str]:
        """The stored table's columns, with their names in programs."""
        layout = self._definition.layout
        if layout is not None:
            return names_in_programs(layout)
        return {name: f"c{n}" for n, name in enumerate(self._memory.get("plain", []))}
