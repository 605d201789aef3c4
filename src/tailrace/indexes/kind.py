"""What a kind of index is: how it is defined, built, searched and maintained.

A kind is a folder with a `kind.py`, and an entry in `definition.KINDS`. What is the same for all of
them (segments, row addresses, deletes, freshness, merges) is written once, in this folder, and asks
the kind for the rest. Importing a kind is cheap: tantivy and faiss are imported by the methods that
need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from tailrace.arguments import show
from tailrace.errors import InvalidError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tailrace.indexes.definition import Definition
    from tailrace.indexes.index_snapshot import IndexSnapshot
    from tailrace.store.schema import Column, TableInfo
    from tailrace.store.transaction import Transaction

    # By position in a segment: rows that a search must not find.
    Hidden = npt.NDArray[np.bool_]


# A row that was found: its score, the number of its segment, and its position there.
Hit = tuple[float, int, int]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of an index: a field for each, as users name them."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON has them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Options:
        """The inverse of `to_dict`."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()})


class SegmentWriter(Protocol):
    """Writes the files of one segment into a directory."""

    def add(self, columns: Sequence[pa.ChunkedArray]) -> None:
        """Add rows; none of them is NULL in all columns."""

    def finish(self) -> list[Path]:
        """Write what is left; returns the files."""


class Searcher(ABC):
    """Searches the segments of one reader as if they were one."""

    @abstractmethod
    def search(self, query: object, limit: int) -> list[Hit]:
        """The best rows that are not hidden, the best first."""

    def highlights(self, query: object, texts: Sequence[Sequence[str | None]]) -> list[str | None]:
        """For each row a piece of HTML that shows why it was found; `texts` are its columns."""
        raise NotImplementedError  # but for kinds that have highlights


class IndexKind(ABC):
    """One kind of index; see the module."""

    name: ClassVar[str]  # that `using=` and the catalog have
    options_type: ClassVar[type[Options]]
    query_type: ClassVar[str]  # what it is searched for, as Spark names the type
    query_name: ClassVar[str]  # what the argument is called in SQL
    query_example: ClassVar[str]  # as SQL writes it
    has_highlights: ClassVar[bool] = False
    # Whether large indexes are divided by centroids (`vectors/training.py`).
    is_trained: ClassVar[bool] = False
    # Whether tasks may share a row group, because indexing rows takes longer than reading them.
    shares_row_groups: ClassVar[bool] = True

    @property
    def option_names(self) -> tuple[str, ...]:
        """The options that users may give."""
        return tuple(field.name for field in fields(self.options_type))

    @property
    @abstractmethod
    def format(self) -> str:
        """What writes segments now; those of another format are rebuilt."""

    @abstractmethod
    def check_installed(self) -> None:
        """Raise InvalidError, with the extra to install, unless the library is there."""

    # --- defining ---------------------------------------------------------------------------

    @abstractmethod
    def define(self, table: TableInfo, columns: list[Column], given: dict[str, Any]) -> Options:
        """Check columns and options; takes out of `given` the options that it knows."""

    def complete(
        self,
        txn: Transaction,  # noqa: ARG002
        table: TableInfo,  # noqa: ARG002
        definition: Definition,
    ) -> Definition:
        """A new index with what its table's rows tell; refused if they don't fit it."""
        return definition

    def constrain(  # noqa: B027  (most kinds don't)
        self, txn: Transaction, table: TableInfo, definition: Definition
    ) -> None:
        """Have the table refuse rows that don't fit a new index."""

    def release(  # noqa: B027
        self, txn: Transaction, table: TableInfo, definition: Definition
    ) -> None:
        """Take back what `constrain` did, for an index that is being dropped."""

    # --- building and searching -------------------------------------------------------------

    @abstractmethod
    def writer(
        self, definition: Definition, directory: Path, *, small: bool, centroids: Any | None
    ) -> SegmentWriter:
        """A writer of one segment; `small` if it will not have many rows."""

    @abstractmethod
    def open(
        self,
        definition: Definition,
        directory: Path,
        temporary: Callable[[], Path],
        centroids: tuple[int, Any] | None,
    ) -> Any:
        """What stays open of a segment's files, also when the cache has evicted them.

        `temporary` makes a directory on the same disk; `centroids` are those that divide the
        segment, with their id.
        """

    @abstractmethod
    def searcher(
        self,
        snapshot: IndexSnapshot,
        segments: Sequence[tuple[Any, Hidden]],
        temporary: Callable[[], Path],
    ) -> Searcher:
        """Searches opened segments; `temporary` makes a directory on their disk."""


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
