"""What a process knows of the catalog: read once, and then followed by what has changed.

One statement says whether there are new snapshots, and which tables changed in them. Tables and
views are known by the version of the schemas, which moves whenever one of them does; files come
in with the first use of their table (`table_files`).

Always true: an answer about a snapshot is what the catalog would say. What is not known for
certain is read from the catalog, in the same moment as whether the snapshot is still there; and
nothing is decided here: a commit asks the catalog itself.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from threading import Lock
from typing import Any, TypeVar

import sqlalchemy as sa

from tailrace.catalog import ducklake as dl
from tailrace.catalog.database import Database
from tailrace.catalog.part import Int
from tailrace.lru import LruCache
from tailrace.store import lookup, table_files
from tailrace.store import tables as t
from tailrace.store.files import DataFile
from tailrace.store.lookup import NEWEST, NO_SNAPSHOT, OLDEST, ViewInfo
from tailrace.store.schema import TableInfo
from tailrace.store.table_files import Stats, TableFiles

T = TypeVar("T")

# For so long, in seconds, a snapshot that was there is taken to be there still: what a purge has
# taken from the catalog can be read for `object_grace`, which is at least a minute.
_TRUSTED = 30.0
_MOST_CHANGED = 1000  # tables that are followed at once; with more, all files are read anew
_MOST_NAMES = 5000  # tables and views in memory
_MOST_FILES = 100_000  # files and statistics in memory
_MOST_SPANS = 1000

_S, _CHANGED = dl.snapshot.c, t.own_table.c
_KNOWN = sa.bindparam("known", type_=Int)
_KNOWN_TIME = sa.select(_S.snapshot_time).where(_S.snapshot_id == _KNOWN).scalar_subquery()
# When something about a table's files changed last: rows came or went, or moved to other files.
_MOVED = sa.case(
    (
        _CHANGED.last_rewrite_snapshot > _CHANGED.last_change_snapshot,
        _CHANGED.last_rewrite_snapshot,
    ),
    else_=_CHANGED.last_change_snapshot,
)
# The newest snapshot, once for each table that has changed since the known one, or once.
_FOLLOW = (
    sa.select(
        _S.snapshot_id.label("newest"),
        _S.snapshot_time.label("time"),
        _S.schema_version.label("version"),
        OLDEST.label("oldest"),
        _KNOWN_TIME.label("known_time"),
        _CHANGED.table_id,
        _MOVED.label("changed"),
    )
    .select_from(dl.snapshot)
    .outerjoin(
        t.own_table,
        sa.or_(_CHANGED.last_change_snapshot > _KNOWN, _CHANGED.last_rewrite_snapshot > _KNOWN),
    )
    .where(_S.snapshot_id == NEWEST)
    .limit(_MOST_CHANGED)
)


@dataclass(frozen=True, kw_only=True)
class _Head:
    """The snapshots that there are, as of a moment."""

    newest: int
    oldest: int
    time: object  # of the newest: another one with its number is of another history
    confirmed: float


@dataclass(kw_only=True)
class _Span:
    """Snapshots between which the schemas did not change."""

    first: int
    last: int
    version: int


class Mirror:
    """A catalog in memory, shared by the threads of a process."""

    def __init__(self, database: Database, now: Callable[[], float] = time.monotonic) -> None:
        self._database, self._now = database, now
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._following = Lock()  # held by who reads the head
        self._begun = self._done = 0  # how often that was
        self._lock = Lock()  # of what is below
        self._head: _Head | None = None
        self._forget()

    def _forget(self) -> None:
        self._spans: list[_Span] = []
        self._named: LruCache[tuple[Any]] = LruCache(_MOST_NAMES)
        self._files: OrderedDict[int, TableFiles] = OrderedDict()
        self._weights: dict[int, int] = {}
        self._weight = 0

    # --- which snapshots there are ----------------------------------------------------------

    def newest(self) -> int:
        """The number of the newest snapshot: of all that was committed before this call."""
        return self._follow().newest

    @property
    def last(self) -> int | None:
        """The newest snapshot that is known without asking."""
        return None if self._head is None else self._head.newest

    def moment(self, at: int | None) -> int:
        """A snapshot that was asked for, by default the newest one; it has to be there."""
        newest = self.newest()
        if at is None:
            return newest
        self.check(at)
        return at

    def check(self, at: int) -> None:
        """Refuse a snapshot that does not exist, as `lookup.check_snapshot`."""
        if not self.has(at):
            self.read_at(at, lambda _: None)

    def read_at(self, at: int, read: Callable[[sa.Connection], T]) -> T:
        """Read from the catalog itself, at a snapshot that has to be there in that moment."""
        with self._database.read_at_once() as connection:
            lookup.check_snapshot(connection, at)
            return read(connection)

    def doubt(self) -> None:
        """Ask the catalog before the next answer: snapshots may have been purged."""
        with self._lock:
            if self._head is not None:
                self._head = replace(self._head, confirmed=-inf)

    def has(self, at: int) -> bool:
        """Whether a snapshot is there, and so all later ones, as far as is known."""
        if isinstance(at, bool) or not isinstance(at, int):
            return False
        head = self._head
        if (
            head is None
            or at > head.newest
            or self._now() - head.confirmed > _TRUSTED
            or os.getpid() != self._pid
        ):
            head = self._follow()
        return head.oldest <= at <= head.newest

    def _follow(self) -> _Head:
        if os.getpid() != self._pid:  # a fork: locks may be held by threads that are not here
            self._start()
        asked = self._begun
        with self._following:
            # One that another thread began after this call will do.
            if self._done <= asked or self._head is None:
                self._begun += 1
                begun, now, known = self._begun, self._now(), self._head
                values = {"known": NO_SNAPSHOT if known is None else known.newest}
                self._apply(self._database.rows(_FOLLOW, values), known, now)
                self._done = begun
            head = self._head
        assert head is not None
        return head

    def _apply(self, rows: list[Any], known: _Head | None, now: float) -> None:
        last = rows[0]
        follows = known is not None and last.known_time == known.time
        with self._lock:
            if not follows or len(rows) == _MOST_CHANGED:
                self._forget()
            for row in rows:
                if row.table_id in self._files:
                    self._files[row.table_id].changed = row.changed
            spans = self._spans
            # The version only grows: equal at both ends, it is so in between.
            if spans and spans[-1].version == last.version:
                spans[-1].last = last.newest
            else:
                for files in self._files.values():  # a dropped table's have ended
                    files.changed = last.newest
                spans.append(_Span(first=last.newest, last=last.newest, version=last.version))
                del spans[:-_MOST_SPANS]
            self._head = _Head(
                newest=last.newest, oldest=last.oldest, time=last.time, confirmed=now
            )

    # --- tables and views -------------------------------------------------------------------

    def find_table(
        self, schema: str, name: str, at: int, tenant: str | None = None
    ) -> TableInfo | None:
        """As `lookup.find_table`."""
        return self._find(
            ("table", schema, name, tenant),
            at,
            lambda connection: lookup.find_table(connection, schema, name, at, tenant),
        )

    def table_by_id(self, table_id: int, at: int) -> TableInfo | None:
        """As `lookup.table_by_id`."""
        return self._find(
            ("id", table_id), at, lambda connection: lookup.table_by_id(connection, table_id, at)
        )

    def find_view(
        self, schema: str, name: str, at: int, tenant: str | None = None
    ) -> ViewInfo | None:
        """As `lookup.find_view`."""
        return self._find(
            ("view", schema, name, tenant),
            at,
            lambda connection: lookup.find_view(connection, schema, name, at, tenant),
        )

    def _find(self, key: tuple[Hashable, ...], at: int, read: Callable[[sa.Connection], T]) -> T:
        if not self.has(at):
            return self.read_at(at, read)
        with self._lock:
            spans, named = self._spans, self._named
            place = bisect_right(spans, at, key=lambda span: span.first) - 1
            version = None if place < 0 or spans[place].last < at else spans[place].version
        if version is None:  # the schemas changed twice or more since the last look
            return self.read_at(at, read)
        full = (*key, version)
        held = named.get(full) or named.put(full, (self.read_at(at, read),))
        found: T = held[0]
        return found

    # --- files ------------------------------------------------------------------------------

    def data_files(self, table: TableInfo, at: int) -> list[DataFile]:
        """As `table_files.data_files`."""
        return self._of_files(table, (at,), TableFiles.at, table_files.data_files)

    def files_begun(self, table: TableInfo, since: int, until: int) -> list[DataFile]:
        """As `table_files.files_begun`."""
        return self._of_files(table, (since, until), TableFiles.begun, table_files.files_begun)

    def files_with_deletes(self, table: TableInfo, since: int, until: int) -> list[DataFile]:
        """As `table_files.files_with_deletes`."""
        return self._of_files(
            table, (since, until), TableFiles.with_deletes, table_files.files_with_deletes
        )

    def file_stats(self, table: TableInfo, column_ids: Sequence[int], at: int) -> Stats:
        """As `table_files.file_stats`."""
        return self._of_files(
            table,
            (at,),
            lambda files, at: files.stats(self._database, column_ids, at),
            lambda connection, table, at: table_files.file_stats(connection, table, column_ids, at),
        )

    def learn(self, snapshot: int, moved: Mapping[int, Sequence[DataFile]]) -> None:
        """Take over what a commit of this process has moved, by table: it need not be read then.

        Only if it made its snapshot on top of the last one that is known.
        """
        for table_id, files_moved in moved.items():
            with self._lock:
                files = self._files.get(table_id)
                if self.last != snapshot - 1 or files is None:
                    continue
            with files.lock:
                files.learn(snapshot, files_moved)
                self._weigh(table_id, files)

    def _of_files(
        self, table: TableInfo, span: Sequence[int], ask: Callable[..., T], read: Callable[..., T]
    ) -> T:
        """What the files in memory say of some snapshots, or else the catalog.

        The first of the snapshots is the oldest. `ask` takes the `TableFiles` and the snapshots,
        `read` a connection, the table and the snapshots.
        """
        if all(self.has(at) for at in span):
            with self._lock:
                assert self._head is not None
                newest = self._head.newest
                # From now on, it is told of what changes.
                files = self._files.setdefault(table.id, TableFiles(newest))
                self._files.move_to_end(table.id)
            with files.lock:
                files.bring(self._database, table, newest, span[0])
                if span[0] >= files.floor:
                    answer = ask(files, *span)
                    self._weigh(table.id, files)
                    return answer
        return self.read_at(span[0], lambda connection: read(connection, table, *span))

    def _weigh(self, table_id: int, files: TableFiles) -> None:
        """Let go of what was not used for long, if it is too much."""
        weight = files.weight
        if self._weights.get(table_id) == weight:
            return
        with self._lock:
            if self._files.get(table_id) is not files:
                return
            self._weight += weight - self._weights.get(table_id, 0)
            self._weights[table_id] = weight
            while self._weight > _MOST_FILES and len(self._files) > 1:
                gone, _ = self._files.popitem(last=False)
                self._weight -= self._weights.pop(gone, 0)
