"""The table: one row a figure, its comparison and its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TIMES = "\N{MULTIPLICATION SIGN}"
HEADINGS = ("what", "measured", "compared with", "ratio", "target", "")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure."""

    what: str
    measured: str
    compared: str = ""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None  # None: there is no target

    @property
    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}{TIMES}"
        verdict = {True: "met", False: "missed", None: ""}[self.met]
        return self.what, self.measured, self.compared, ratio, self.target, verdict


def relative(what: str, ours: float, theirs: float, *, to: str, most: float) -> Row:
    """A time that may be at most so many times another."""
    return Row(
        what=what,
        measured=duration(ours),
        compared=f"{to} {duration(theirs)}",
        ratio=ours / theirs,
        target=f"≤ {most:g}{TIMES}",
        met=ours / theirs <= most,
    )


def absolute(what: str, ours: float, *, most: float, compared: str = "") -> Row:
    """A time that may be at most so many seconds."""
    return Row(
        what=what,
        measured=duration(ours),
        compared=compared,
        target=f"≤ {duration(most)}",
        met=ours <= most,
    )


def duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1000:.3g} ms"


def count(number: float) -> str:
    return f"{number:,.0f}"


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, aligned for a terminal too."""
    lines = [HEADINGS, *(row.cells for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(_line(line, widths) for line in (lines[0], rule, *lines[1:]))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"
