"""An index, as users hold it: searching, waiting, looking at its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.arguments import Name, Seconds, checked, show
from tailrace.errors import InvalidError, NotFoundError, UnavailableError
from tailrace.fixes import Action, Fix
from tailrace.indexes.definition import FULLTEXT, Definition
from tailrace.indexes.reader import Hits, Opener, Reader
from tailrace.indexes.rows import is_deterministic, matching_places, read_rows
from tailrace.indexes.segment import parts_at
from tailrace.indexes.state import Head, head_of, state_at
from tailrace.indexes.upkeep import Upkeep
from tailrace.propagation.job import State
from tailrace.propagation.jobs import Jobs
from tailrace.propagation.status import JobStatus
from tailrace.store import lookup
from tailrace.store.rows import is_spark
from tailrace.store.runtime import Runtime
from tailrace.store.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INDEXED, LATEST = "indexed", "latest"
SCORE, HIGHLIGHT = "score", "highlight"
MOST = 100_000  # rows of a result
# What the schema of a result says of it.
AS_OF, IS_STALE = b"tailrace.snapshot", b"tailrace.stale"


@dataclass(frozen=True, kw_only=True)
class Context:
    """What indexes work with."""

    runtime: Runtime
    jobs: Jobs
    begin: Callable[[], Transaction]
    opener: Opener


@dataclass(frozen=True, kw_only=True)
class IndexStatus:
    """An index, as it is at this moment."""

    table: str
    name: str
    using: str
    columns: tuple[str, ...]
    options: Mapping[str, Any]
    state: str  # of its job
    # The snapshot that it reflects: the newest, if its table has not changed since; None while
    # it is being built.
    watermark: int | None
    is_fresh: bool
    pending_rows: int  # of the table that it does not have yet
    lag_seconds: float  # how long ago the oldest change was made that it does not have
    rows: int  # in its segments, some of them deleted since
    segments: int
    size_bytes: int
    error: str | None
    note: str | None
    created_at: datetime

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found, before columns are added to it."""

    hits: Hits
    reader: Reader
    snapshot: int  # that the result reflects
    is_stale: bool


@checked
class Index:
    """Got from `lake.index(table, name)`."""

    def __init__(
        self, context: Context, job_id: int, table: str, name: str, options: Mapping[str, Any]
    ) -> None:
        self._context, self._job_id = context, job_id
        self._runtime = context.runtime
        self.table, self.name = table, name
        self.definition = Definition.from_options(options)
        self._table_id: int | None = None

    def __repr__(self) -> str:
        return f"<tailrace.Index {self.name} on {self.table}>"

    @property
    def using(self) -> str:
        """`"fulltext"` or `"vector"`."""
        return self.definition.kind

    @property
    def job_id(self) -> int:
        """The id of its job."""
        return self._job_id

    # --- searching --------------------------------------------------------------------------

    def search(
        self,
        query: object,
        limit: int = 10,
        *,
        where: str | None = None,
        columns: Sequence[Name] | None = None,
        freshness: str = INDEXED,
        at: int | None = None,
        highlight: bool = False,
        stale_ok: bool = False,
    ) -> pa.Table:
        """The best rows for a text or a vector: their keys, `score`, and the columns asked for.

        index.search("late delivery", limit=10, where="region = 'eu'", columns=["note"])

        A higher score is better. `where` is a condition in Spark SQL about the table's columns:
        there are `limit` rows, if so many fulfil it. With freshness="latest" the result is as of
        the newest commit, whatever the index has; `at` is a snapshot to search as of. `highlight`
        adds the place of a text that fits best. A table without a key gives all its columns,
        unless some are asked for. `stale_ok` takes what is indexed, if the rest would be too much.
        """
        found = self.find(query, limit, where=where, freshness=freshness, at=at, stale_ok=stale_ok)
        return self.result(found, query, columns=columns, highlight=highlight)

    def find(
        self,
        query: object,
        limit: int = 10,
        *,
        where: str | None = None,
        freshness: str = INDEXED,
        at: int | None = None,
        stale_ok: bool = False,
    ) -> Found:
        """The places and keys of the best rows."""
        check_limit(limit)
        try:
            reader, snapshot, is_stale = self._reader(where, freshness, at, stale_ok=stale_ok)
            hits = reader.search(query, limit)
        except FileNotFoundError:  # somebody has emptied the cache under us
            self._context.opener.forget()
            reader, snapshot, is_stale = self._reader(where, freshness, at, stale_ok=stale_ok)
            hits = reader.search(query, limit)
        return Found(hits=hits, reader=reader, snapshot=snapshot, is_stale=is_stale)

    def result(
        self,
        found: Found,
        query: object = None,
        *,
        columns: Sequence[str] | None = None,
        highlight: bool = False,
    ) -> pa.Table:
        """What was found as a table."""
        table, hits = found.reader.state.table, found.hits
        if isinstance(columns, str):
            columns = [columns]
        if columns is not None and not all(isinstance(name, str) for name in _listed(columns)):
            raise InvalidError(f"columns are a list of names, not {show(columns)}")
        if columns is None and not table.key:
            columns = [column.name for column in table.columns]
        wanted = [table.column(name) for name in columns or ()]
        made = dict(zip(hits.keys.column_names, hits.keys.columns, strict=True))
        taken = {name.casefold() for name in (*made, *(column.name for column in wanted))}
        made[_free(SCORE, taken)] = pa.array(hits.scores)
        more = [column for column in wanted if column.name not in made]
        if highlight and self.using != FULLTEXT:
            raise InvalidError("only what a full-text index finds has highlights")
        text = self.definition.columns_of(table) if highlight else []
        if more or text:
            rows = read_rows(self._runtime, found.reader.state, hits, [*more, *text])
            made |= {column.name: rows.column(column.name) for column in more}
            if highlight:
                shown = self._highlights(found, query, rows, text)
                made[_free(HIGHLIGHT, taken)] = shown
        metadata = {AS_OF: str(found.snapshot), IS_STALE: str(found.is_stale).lower()}
        return pa.table(made, metadata=metadata)

    def _highlights(
        self, found: Found, query: object, rows: pa.Table, columns: Sequence[Any]
    ) -> pa.Array:
        from tailrace.indexes.text.highlight import highlights

        if not rows.num_rows:
            return pa.array([], pa.string())
        texts = [rows.column(column.name).to_pylist() for column in columns]
        return pa.array(highlights(found.reader, query, texts), pa.string())

    def _reader(
        self, where: str | None, freshness: str, at: int | None, *, stale_ok: bool
    ) -> tuple[Reader, int, bool]:
        """What to search, the snapshot that it reflects, and whether it should be a later one."""
        check_freshness(freshness)
        head = self._head()
        if head.watermark is None:
            raise self._unavailable(head)
        if at is not None:
            return self._opened(at, where, head, stale_ok=stale_ok)
        if head.is_fresh:
            # With the columns as they are now: those may have changed without a row.
            reader = self._open(head, max(head.watermark, head.altered), where, tail=False)
            return reader, head.newest, False
        if freshness == INDEXED:
            self._check_history(head)
            return self._open(head, head.watermark, where, tail=False), head.watermark, False
        last = max(head.changed, head.altered)
        if last < head.oldest:
            last = head.newest
        reader, snapshot, is_stale = self._opened(last, where, head, stale_ok=stale_ok)
        return reader, snapshot if is_stale else head.newest, is_stale

    def _check_history(self, head: Head) -> None:
        assert head.watermark is not None
        if head.watermark < head.oldest:
            raise UnavailableError(
                f"{self._label} reflects the snapshot {head.watermark}, which was purged",
                fix=self._fix(Action.SEARCH_LATEST),
            )

    def _opened(
        self, at: int, where: str | None, head: Head, *, stale_ok: bool
    ) -> tuple[Reader, int, bool]:
        try:
            return self._open(head, at, where, tail=True), at, False
        except TailTooLongError:
            if not stale_ok:
                raise
            assert head.watermark is not None
            self._check_history(head)
            return self._open(head, head.watermark, where, tail=False), head.watermark, True

    def _open(self, head: Head, at: int, where: str | None, *, tail: bool) -> Reader:
        opener = self._context.opener

        def make() -> Reader:
            if where is not None:
                whole = self._open(head, at, None, tail=tail)
                return whole.narrowed(matching_places(self._runtime, whole.state, where))
            state = state_at(self._runtime, self._job_id, self._source(), self.definition, at)
            most = self._runtime.settings.tail_rows
            if tail and state.tail_rows > most:
                raise TailTooLongError(
                    f"{self._label} does not have {state.tail_rows:,} rows yet, and a search looks "
                    f"at up to {most:,} beside the index",
                    fix=self._fix(Action.LET_INDEX_CATCH_UP),
                )
            return opener.open(state, tail=tail)

        if where is not None and not is_deterministic(where):
            return make()
        return opener.reader(self._job_id, (head.version, at, tail, where), make)

    @property
    def _label(self) -> str:
        return f"the index {self.name} on {self.table}"

    def _fix(self, action: Action) -> Fix:
        return Fix(action, self.name, self.table)

    def _head(self) -> Head:
        head = head_of(self._runtime, self._job_id)
        if head is None:
            raise NotFoundError(f"{self._label} was dropped")
        return head

    def _source(self) -> int:
        if self._table_id is None:
            from tailrace.propagation import joblog

            with self._runtime.database.read() as connection:
                self._table_id = joblog.sources_of(connection, [self._job_id])[self._job_id][0]
        return self._table_id

    def _unavailable(self, head: Head) -> UnavailableError:
        status = self._job_status()
        with self._runtime.database.read() as connection:
            table = lookup.table_by_id(connection, self._source(), head.newest)
            files = [] if table is None else lookup.data_files(connection, table, head.newest)
        rows = sum(file.rows for file in files)
        waits = "waits for its first run" if status.state is State.NEW else f"is {status.state}"
        reason = f": {status.error}" if status.error else ""
        return UnavailableError(
            f"{self._label} is not built yet: {rows:,} rows to index, its job {waits}{reason}",
            fix=self._fix(Action.BUILD_INDEX),
        )

    # --- its state --------------------------------------------------------------------------

    def _job_status(self) -> JobStatus:
        return self._context.jobs.status(self.table, self.name)

    def status(self) -> IndexStatus:
        """How it is."""
        job, head = self._job_status(), self._head()
        with self._runtime.database.read_at_once() as connection:
            newest = lookup.newest_snapshot(connection)
            table = lookup.table_by_id(connection, self._source(), newest)
            parts = parts_at(connection, self._job_id, newest)
            files = [] if table is None else lookup.data_files(connection, table, newest)
            named = {key for segment in parts.segments for key in segment.files}
            lacking = [file for file in files if file.key not in named]
            # Deletes alone leave no file that it lacks: then the last change has to do.
            first = min([file.begin for file in lacking], default=head.changed)
            since = lookup.snapshot_time(connection, first) or job.created_at
        now = self._runtime.clock.now()
        # Also of an index that has lost a column, and says so.
        there = {} if table is None else {column.id: column.name for column in table.columns}
        columns = [there.get(number, "(dropped)") for number in self.definition.columns]
        options = self.definition.to_options()
        return IndexStatus(
            table=self.table,
            name=self.name,
            using=self.using,
            columns=tuple(columns),
            options={k: v for k, v in options.items() if k not in ("kind", "column_ids")},
            state=str(job.state),
            watermark=job.watermark,
            is_fresh=job.is_fresh,
            pending_rows=sum(
                file.rows - (file.deletes.count if file.deletes else 0) for file in lacking
            ),
            lag_seconds=0.0 if job.is_fresh else max(0.0, (now - since).total_seconds()),
            rows=sum(segment.rows for segment in parts.segments),
            segments=sum(1 for segment in parts.segments if segment.path),
            size_bytes=sum(segment.size for segment in parts.segments)
            + sum(one.size for one in parts.centroids.values()),
            error=job.error,
            note=job.note,
            created_at=job.created_at,
        )

    def snapshot_for(self, freshness: str) -> int:
        """The snapshot that a search shows: the same as long as the table is."""
        head = self._head()
        if head.watermark is None:
            raise self._unavailable(head)
        if freshness != LATEST and not head.is_fresh:
            self._check_history(head)
            return head.watermark
        return max(head.changed, head.altered, head.watermark)

    @property
    def watermark(self) -> int | None:
        """The snapshot that it reflects."""
        return self._job_status().watermark

    def wait(self, snapshot: int | None = None, timeout: Seconds | None = None) -> None:
        """Return when it reflects a snapshot, by default the newest.

        If no process serves the lake, this one does the work.
        """
        self._head()  # not another one of its name, if it was dropped
        self._context.jobs.wait(self.table, self.name, snapshot, timeout)

    def rebuild(self) -> None:
        """Build all of it anew, here and now, from the table's rows; searches go on meanwhile."""
        if self._head().watermark is None:
            self.wait()
        Upkeep(self._runtime, self._context.begin, self._job_id).rebuild()

    def search_many(
        self,
        queries: DataFrame,
        column: Name,
        limit: int = 10,
        *,
        freshness: str = INDEXED,
        at: int | None = None,
    ) -> DataFrame:
        """Search for many texts or vectors at once, on Spark.

        For each row of `queries`, up to `limit` rows with its columns, `rank` from 1, `score` and
        the table's key. Every task opens the index for itself.
        """
        from tailrace.indexes.batch import search_many

        if not is_spark(queries):
            raise InvalidError(f"search_many takes a Spark DataFrame, not {show(queries)}")
        check_limit(limit)
        reader, _, _ = self._reader(None, freshness, at, stale_ok=False)
        return search_many(self._runtime, reader.state, queries, column, limit)


def _free(name: str, taken: set[str]) -> str:
    """A name for a column that we add; the table's own keep theirs."""
    while name in taken:
        name = f"_{name}"
    return name


def check_freshness(freshness: object) -> None:
    """Refuse what is none."""
    if freshness not in (INDEXED, LATEST):
        raise InvalidError(f'freshness is "indexed" or "latest", not {show(freshness)}')


def _listed(given: object) -> Sequence[object]:
    return given if isinstance(given, Sequence) else [given]


def check_limit(limit: object) -> None:
    """Refuse what is no number of rows."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
        raise InvalidError(f"a limit is a whole number from 1 to {MOST}, not {show(limit)}")


class TailTooLongError(UnavailableError):
    """There is too much that the index does not have yet."""


@checked
def as_of(result: pa.Table) -> int:
    """The snapshot that the result of a search reflects."""
    metadata = result.schema.metadata or {}
    if AS_OF not in metadata:
        raise InvalidError("this table is not the result of a search")
    return int(metadata[AS_OF])


@checked
def is_stale(result: pa.Table) -> bool:
    """Whether a search with `stale_ok` gave less than it was asked for."""
    return bool((result.schema.metadata or {}).get(IS_STALE) == b"true")
