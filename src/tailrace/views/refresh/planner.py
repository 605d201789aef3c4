"""Decides what a refresh will do, before anything is read, and explains it to users.

`refresh` does what is decided here, and `explain` shows it: both pass what they know of the view's
sources and changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from tailrace.errors import InvalidError
from tailrace.store import changes
from tailrace.store.changes import Feed
from tailrace.store.runtime import Runtime
from tailrace.store.scan import Budget
from tailrace.store.schema import Column
from tailrace.views.definition import Definition, Input
from tailrace.views.query.parse import moment_text
from tailrace.views.refresh.choose import Choice, Facts, Option, Strategy, choose
from tailrace.views.refresh.on_spark import has_known_meaning
from tailrace.views.refresh.programs import Prepared, Programs, names_in_programs

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


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Printable; `to_dict()` for programs."""

    view: str
    policy: str
    strategy: str  # the one that would be chosen now
    place: str  # where the work would be done: in memory, or by spark
    reason: str  # why a view is computed in full, if it is
    spark: str  # why a small change needs Spark, if it does
    watermark: int | None
    sources: tuple[dict[str, Any], ...]
    strategies: tuple[Option, ...]

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        strategies = [
            {
                "strategy": str(o.strategy),
                "possible": o.possible,
                "reason": o.reason,
                "cost": o.cost,
            }
            for o in self.strategies
        ]
        return {**asdict(self), "sources": list(self.sources), "strategies": strategies}

    def __str__(self) -> str:
        lines = [f"{self.view}: {self.strategy} (policy {self.policy})"]
        if self.reason:
            lines.append(f"  computed in full: {self.reason}")
        elif self.spark:
            lines.append(f"  small changes need Spark: {self.spark}")
        else:
            lines.append("  small changes are worked on in memory, without Spark")
        for source in self.sources:
            change = f"{source['changed']:,} changed" if source["changed"] else "unchanged"
            lines.append(f"  {source['name']}: {source['rows']:,} rows, {change}")
        for option in self.strategies:
            mark = "*" if str(option.strategy) == self.strategy else " "
            detail = option.reason if not option.possible else f"about {option.cost or 0:.1f} s"
            lines.append(f"  {mark} {option.strategy:<7} {detail}")
        return "\n".join(lines)


def explain(
    runtime: Runtime,
    name: str,
    definition: Definition,
    *,
    policy: str,
    watermark: int | None = None,
    memory: Mapping[str, Any] | None = None,
    stored: Sequence[Column] | None = None,
) -> Explanation:
    """What a refresh would do about the present changes."""
    known = memory or {}
    newest = runtime.mirror.newest()
    tails = watermark is not None and runtime.mirror.has(watermark)
    sources = {
        given.name: _source(runtime, definition, given, watermark if tails else None, newest)
        for given in definition.sources.values()
    }
    planner = Planner(runtime, definition, sources, known, stored)
    moment = known.get("moment", "")
    situation = {
        "rebuild": watermark is not None and not tails,
        "moved": bool(moment) and moment != moment_text(definition.moments, runtime.clock.now()),
    }
    try:
        plan = planner.plan(policy, **situation)
    except InvalidError:  # the policy asks for the impossible, which has to be explained
        plan = planner.plan("auto", **situation)
    return Explanation(
        view=name,
        policy=policy,
        strategy=str(plan.strategy),
        place="spark" if plan.on_spark else "memory",
        reason=definition.reason or plan.facts.refused,
        spark=plan.spark,
        watermark=watermark,
        sources=tuple(
            {"name": source, "rows": rows, "changed": plan.facts.changes.get(source, 0)}
            for source, rows in plan.facts.sizes.items()
        ),
        strategies=plan.choice.options,
    )


def _source(
    runtime: Runtime, definition: Definition, given: Input, since: int | None, newest: int
) -> Source:
    """A source as it is now, and what has changed since the watermark."""
    table = definition.tables.get(given.name)
    if table is None:
        return Source(rows=lambda: 0, change=None)
    rows = sum(file.rows for file in runtime.mirror.data_files(table, newest))
    change = None
    if since is not None and given.view is None:
        feed = changes.plan(runtime, table, since, newest, net=True)
        change = feed if feed.rows else None
    return Source(rows=lambda: rows, change=change)
