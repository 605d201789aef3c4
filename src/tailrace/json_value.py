"""Nested values that users give and the catalog keeps as JSON: specs, schedules, options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tailrace.arguments import LONGEST_TEXT, is_text, show
from tailrace.errors import InvalidError

# The deepest nesting; the most values and characters in total.
DEEPEST, MOST = 32, 4 * LONGEST_TEXT


def json_value(given: object, what: str) -> Any:
    """A copy of the value, if JSON can hold it; else an InvalidError that says why not."""
    return _Copier(what).copied(given, 0)


class _Copier:
    def __init__(self, what: str) -> None:
        self._what, self._left = what, MOST

    def copied(self, value: Any, depth: int) -> Any:
        if depth > DEEPEST:
            raise self._wrong(f"at most {DEEPEST} values inside each other")
        if isinstance(value, Mapping):
            return {
                str(self._atom(name, names=True)): self.copied(one, depth + 1)
                for name, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.copied(one, depth + 1) for one in value]
        return self._atom(value)

    def _atom(self, value: Any, *, names: bool = False) -> Any:
        self._left -= 1 + (len(value) if isinstance(value, str) else 0)
        if self._left < 0:
            raise self._wrong(f"at most {MOST:,} values and characters")
        if is_text(value):
            return str(value)
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise self._wrong(f"with texts of at most {LONGEST_TEXT:,} characters")
        if not names:
            if value is None or isinstance(value, bool):
                return value
            if isinstance(value, int) and abs(value) < 2**63:
                return int(value)
            if isinstance(value, float) and math.isfinite(value):
                return float(value)
        raise self._wrong(f"which has no word for {show(value)}")

    def _wrong(self, why: str) -> InvalidError:
        return InvalidError(f"{self._what} has to be JSON, {why}")
