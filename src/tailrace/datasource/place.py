"""The options of a reader or writer: which lake, which table, which snapshot.

Always true: a lake is opened here and never created, and no value of an option but the names of
lakes in directories, tables and options is in a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.address import absolute, is_missing
from tailrace.errors import InvalidError, NotFoundError
from tailrace.lake import Lake, connect
from tailrace.settings import Settings
from tailrace.store.files import Op
from tailrace.store.lookup import DEFAULT_TENANT

_STORAGE = "storage."
_NAMES = ("lake", "table", "version", "tenant", "operation")
_OPERATIONS = {str(op): op for op in (Op.APPEND, Op.UPSERT)}


@dataclass(frozen=True, kw_only=True)
class Place:
    """What the options say."""

    lake: str = field(repr=False)  # an address may have a password in it
    table: str
    version: int | None  # None: the newest snapshot
    tenant: str
    operation: Op
    storage_options: dict[str, Any] = field(repr=False)

    def open(self, settings: Settings | None = None) -> Lake:
        """Open the lake, if it is there."""
        if is_missing(self.lake):
            raise NotFoundError(
                f"there is no lake in {absolute(self.lake)}, as Spark's Python processes see it: "
                "give the option lake as a full path that they can reach"
            )
        return connect(
            self.lake,
            tenant=self.tenant,
            storage_options=self.storage_options,
            settings=settings,
        )


def place_of(options: Mapping[str, str], defaults: Mapping[str, Any]) -> Place:
    """The options, checked; `defaults` are storage options."""
    for name in ("lake", "table"):
        if not options.get(name):
            raise InvalidError(f'format("tailrace") needs the option {name}: .option("{name}", …)')
    storage = {name: value for name, value in options.items() if name.startswith(_STORAGE)}
    unknown = sorted(set(options) - set(_NAMES) - set(storage))
    if unknown:
        raise InvalidError(
            f'format("tailrace") has no option {unknown[0]!r}: {", ".join(_NAMES)}, and '
            f"{_STORAGE}… for obstore's"
        )
    return Place(
        lake=options["lake"],
        table=options["table"],
        version=_version(options.get("version")),
        tenant=options.get("tenant", DEFAULT_TENANT),
        operation=_operation(options.get("operation", str(Op.APPEND))),
        storage_options={
            **defaults,
            **{name.removeprefix(_STORAGE): _flag(value) for name, value in storage.items()},
        },
    )


def _version(given: str | None) -> int | None:
    if given is None:
        return None
    if not given.isdecimal() or len(given) > 19:
        raise InvalidError(f"the option version is a snapshot's number, not {given!r}")
    return int(given)


def _operation(given: str) -> Op:
    if given.lower() not in _OPERATIONS:
        raise InvalidError(f"the option operation is append or upsert, not {given!r}")
    return _OPERATIONS[given.lower()]


def _flag(value: str) -> Any:
    """Options of Spark are text, also those that are true or false."""
    return {"true": True, "false": False}.get(value.lower(), value)
