"""Checks the values that users give to the options of an index."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.arguments import show
from tailrace.errors import InvalidError


def one_of(name: str, value: object, known: Sequence[str]) -> str:
    """A text, in small letters, that is one of those that are known."""
    folded = value.casefold() if isinstance(value, str) else None
    if folded not in known:
        raise InvalidError(f"{name} is one of {', '.join(known)}, not {show(value)}")
    return str(folded)


def flag(name: str, value: object) -> bool:
    """A truth value, also as SQL writes it."""
    if isinstance(value, str) and value.casefold() in ("true", "false"):
        return value.casefold() == "true"
    if not isinstance(value, bool):
        raise InvalidError(f"{name} is true or false, not {show(value)}")
    return value


def number(name: str, value: object) -> float:
    """A number, also as text."""
    try:
        if isinstance(value, bool):
            raise TypeError  # noqa: TRY301  (as of anything else that is no number)
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InvalidError(f"{name} is a number, not {show(value)}") from None
