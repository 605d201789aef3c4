"""Tells users how a view is kept fresh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.errors import InvalidError
from tailrace.store import changes
from tailrace.store.runtime import Runtime
from tailrace.store.schema import Column
from tailrace.views.definition import Definition, Input
from tailrace.views.query.moments import moment_text
from tailrace.views.refresh.choose import Option
from tailrace.views.refresh.planner import Planner, Source


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
        return {
            "view": self.view,
            "policy": self.policy,
            "strategy": self.strategy,
            "place": self.place,
            "reason": self.reason,
            "spark": self.spark,
            "watermark": self.watermark,
            "sources": list(self.sources),
            "strategies": [
                {
                    "strategy": str(option.strategy),
                    "possible": option.possible,
                    "reason": option.reason,
                    "cost": option.cost,
                }
                for option in self.strategies
            ],
        }

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
