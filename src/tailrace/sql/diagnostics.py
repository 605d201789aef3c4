"""Errors in a statement: the place, what stands there, and what would be valid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from tailrace.errors import InvalidError

_MOST_MARKED = 60  # letters of a long fragment that are underlined


@dataclass(frozen=True, kw_only=True)
class Span:
    """A piece of a text, from one offset up to another, which is not part of it."""

    start: int
    end: int


def error_at(
    text: str, span: Span, message: str, *, valid: Iterable[str] = (), hint: str = ""
) -> InvalidError:
    """An error that shows the line, the column and the fragment.

    The span may begin at the end of the text, where something is missing.
    """
    before = text[: span.start]
    number = before.count("\n") + 1
    column = span.start - (before.rfind("\n") + 1) + 1
    line = text.split("\n")[number - 1]
    length = min(max(1, span.end - span.start), max(1, len(line) - column + 1), _MOST_MARKED)
    margin = f"{number} | "
    lines = [
        f"line {number}, column {column}: {message}",
        f"  {margin}{line}",
        f"  {' ' * (len(margin) - 2)}| {' ' * (column - 1)}{'^' * length}",
    ]
    options = list(dict.fromkeys(valid))
    if options:
        lines.append(f"valid here: {', '.join(options)}")
    if hint:
        lines.append(hint)
    return InvalidError("\n".join(lines))


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, if a known name is similar."""
    options = {one.casefold(): one for one in known}
    near = get_close_matches(given.casefold(), options, n=1, cutoff=0.6)
    return f"; did you mean {options[near[0]]}?" if near else ""
