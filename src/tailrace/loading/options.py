"""The options of a load, checked once, before any file is read."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from tailrace.arguments import show
from tailrace.errors import Action, Fix, InvalidError


class Format(StrEnum):
    """What a file holds."""

    CSV = "csv"
    JSON = "json"  # an object on each line
    PARQUET = "parquet"


class OnError(StrEnum):
    """What to do with rows that don't fit."""

    ABORT = "abort"  # the first ones are named, and nothing is loaded
    SKIP = "skip"  # they are counted
    REPORT = "report"  # they are written to a file


class OnDuplicate(StrEnum):
    """Which row to load where several have the same key."""

    REJECT = "reject"  # the first; the others count as rows that do not fit
    FIRST = "first"
    LAST = "last"


class OnExisting(StrEnum):
    """What to do with a row whose key the table already has."""

    REJECT = "reject"  # it counts as a row that does not fit
    REPLACE = "replace"  # it replaces the table's row
    KEEP = "keep"  # the table's row stays


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to read files, and what to do with rows in doubt."""

    on_error: OnError = OnError.ABORT
    on_duplicate: OnDuplicate = OnDuplicate.REJECT
    on_existing: OnExisting = OnExisting.REJECT
    format: Format | None = None  # None: by the file's name
    # For CSV.
    header: bool = True
    columns: tuple[str, ...] | None = None  # names of the fields, for files without a header
    delimiter: str | None = None  # None: a comma, in .tsv files a tab
    quote: str | None = '"'  # None: no character quotes
    nulls: tuple[str, ...] = ()  # texts that mean NULL, like an empty field
    # For CSV and JSON: the zone of times that don't name one. None: they don't fit a timestamp.
    time_zone: str | None = None


Choice = TypeVar("Choice", bound=StrEnum)


def _misfit(option: str, expected: str, given: object) -> InvalidError:
    fix = Fix(Action.CHANGE_OPTION, option)
    return InvalidError(f"expected {expected}, not {show(given)}", fix=fix)


def one_of(kind: type[Choice], given: object, option: str) -> Choice:
    """An option's value, or an error that lists the values it may have."""
    try:
        return kind(str(given))
    except ValueError:
        known = ", ".join(member.value for member in kind)
        raise _misfit(option, f"one of {known}", given) from None


def character(given: str | None, option: str) -> str | None:
    """A single character, such as a delimiter; a tab may be spelled out."""
    if given is None:
        return None
    text = {"\\t": "\t", "tab": "\t"}.get(given, given)
    if len(text) != 1 or not text.isascii() or text in "\r\n":
        raise _misfit(option, "a single ASCII character such as ','", given)
    return text


def text_list(given: str | Iterable[str] | None, option: str) -> tuple[str, ...] | None:
    """Texts: one, several, or None if not given."""
    if given is None:
        return None
    texts = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(text, str) for text in texts):
        raise _misfit(option, "text", given)
    return texts


def zone(given: str | None) -> str | None:
    """The name of a time zone that exists."""
    if given is None:
        return None
    try:
        zoneinfo.ZoneInfo(given)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidError(
            f"there is no time zone {show(given)}: write it as in 'Europe/Berlin' or 'UTC'"
        ) from None
    return given
