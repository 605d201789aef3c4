"""What users are told of how a view is kept fresh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.views.definition import Definition
from tailrace.views.refresh.choose import Choice, Facts, Option


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Printable; `to_dict()` for programs."""

    view: str
    policy: str
    strategy: str  # the one that would be taken now
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
            said = option.reason if not option.possible else f"about {option.cost or 0:.1f} s"
            lines.append(f"  {mark} {option.strategy:<7} {said}")
        return "\n".join(lines)


def explanation(
    name: str,
    made: Definition,
    facts: Facts,
    choice: Choice,
    *,
    policy: str,
    watermark: int | None,
    spark: str,
) -> Explanation:
    """The explanation of a choice."""
    sources = tuple(
        {"name": source, "rows": rows, "changed": facts.changes.get(source, 0)}
        for source, rows in facts.sizes.items()
    )
    return Explanation(
        view=name,
        policy=policy,
        strategy=str(choice.strategy),
        reason=made.reason or facts.refused,
        spark=spark,
        watermark=watermark,
        sources=sources,
        strategies=choice.options,
    )
