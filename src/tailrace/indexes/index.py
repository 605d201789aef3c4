"""An index as users hold it: to search, to wait for, to look after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.arguments import Name, Seconds, checked, show
from tailrace.errors import Action, Fix, InvalidError, NotFoundError, UnavailableError
from tailrace.indexes.definition import Definition
from tailrace.indexes.index_snapshot import index_at, is_deterministic, matching_rows
from tailrace.indexes.reader import Opener, Reader
from tailrace.indexes.results import Found, to_table
from tailrace.indexes.status import IndexStatus, Progress, progress_of, status_of
from tailrace.propagation.job import State
from tailrace.propagation.jobs import Jobs
from tailrace.propagation.status import JobStatus
from tailrace.propagation.task_types import TaskResult, tending
from tailrace.store.rows import is_spark
from tailrace.store.runtime import TenantRuntime
from tailrace.store.tasks import NewTask
from tailrace.store.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INDEXED, LATEST = "indexed", "latest"
MOST = 100_000  # rows of a result


@dataclass(frozen=True, kw_only=True)
class Context:
    """The parts of a lake that its indexes work with."""

    runtime: TenantRuntime
    jobs: Jobs
    begin: Callable[[], Transaction]
    do: Callable[[NewTask], TaskResult]  # a task, here and now
    opener: Opener


@checked
class Index:
    """Got from `lake.index(table, name)`."""

    def __init__(
        self, context: Context, job_id: int, table: str, name: str, spec: Mapping[str, Any]
    ) -> None:
        self._context, self._job_id = context, job_id
        self._runtime = context.runtime
        self.table, self.name = table, name
        self.definition = Definition.from_spec(spec)

    def __repr__(self) -> str:
        return f"<tailrace.Index {self.name} on {self.table}>"

    @property
    def using(self) -> str:
        """`"fulltext"` or `"vector"`."""
        return self.definition.using

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
        """The best rows: their addresses, scores and keys."""
        check_limit(limit)

        def search() -> Found:
            reader, snapshot, is_stale = self._reader(where, freshness, at, stale_ok=stale_ok)
            hits = reader.search(query, limit)
            return Found(hits=hits, reader=reader, snapshot=snapshot, is_stale=is_stale)

        try:
            return search()
        except FileNotFoundError:  # somebody has emptied the cache meanwhile
            self._context.opener.forget()
            return search()

    def result(
        self,
        found: Found,
        query: object = None,
        *,
        columns: Sequence[str] | None = None,
        highlight: bool = False,
    ) -> pa.Table:
        """What was found as a table; `query` only for highlights."""
        return to_table(self._runtime, found, query, columns=columns, highlight=highlight)

    def _reader(
        self, where: str | None, freshness: str, at: int | None, *, stale_ok: bool
    ) -> tuple[Reader, int, bool]:
        """A reader, the snapshot that its hits reflect, and whether that is too old."""
        check_freshness(freshness)
        progress = self._progress()
        watermark = progress.watermark
        if watermark is None:
            raise self._unavailable(progress)
        if at is not None:
            wanted, shown = at, at
        elif progress.is_fresh:
            # With the columns as they are now: those may have changed without a row.
            wanted = max(watermark, progress.altered)
            return self._open(progress, wanted, where, tail=False), progress.newest, False
        elif freshness == INDEXED:
            return self._indexed(progress, watermark, where), watermark, False
        else:
            wanted, shown = max(progress.changed, progress.altered), progress.newest
            if wanted < progress.oldest:
                wanted = progress.newest
        try:
            return self._open(progress, wanted, where, tail=True), shown, False
        except TailTooLongError:
            if not stale_ok:
                raise
            return self._indexed(progress, watermark, where), watermark, True

    def _check_history(self, progress: Progress, watermark: int) -> None:
        if watermark < progress.oldest:
            raise UnavailableError(
                f"{self._label} reflects the snapshot {watermark}, which was purged",
                fix=self._fix(Action.SEARCH_LATEST),
            )

    def _indexed(self, progress: Progress, watermark: int, where: str | None) -> Reader:
        """What the index has, and no more."""
        self._check_history(progress, watermark)
        return self._open(progress, watermark, where, tail=False)

    def _open(self, progress: Progress, at: int, where: str | None, *, tail: bool) -> Reader:
        opener = self._context.opener

        def make() -> Reader:
            if where is not None:
                whole = self._open(progress, at, None, tail=tail)
                return whole.narrowed(matching_rows(self._runtime, whole.snapshot, where))
            snapshot = index_at(
                self._runtime, self._job_id, progress.table_id, self.definition, at, tail=tail
            )
            most = self._runtime.settings.tail_rows
            if tail and snapshot.tail_rows > most:
                raise TailTooLongError(
                    f"{self._label} does not have {snapshot.tail_rows:,} rows yet, and a search "
                    f"looks at up to {most:,} beside the index",
                    fix=self._fix(Action.LET_INDEX_CATCH_UP),
                )
            return opener.open(snapshot, tail=tail)

        if where is not None and not is_deterministic(where):
            return make()
        return opener.reader(self._job_id, (progress.version, at, tail, where), make)

    @property
    def _label(self) -> str:
        return f"the index {self.name} on {self.table}"

    def _fix(self, action: Action) -> Fix:
        return Fix(action, self.name, self.table)

    def _progress(self) -> Progress:
        progress = progress_of(self._runtime, self._job_id)
        if progress is None:
            raise NotFoundError(f"{self._label} was dropped")
        return progress

    def _unavailable(self, progress: Progress) -> UnavailableError:
        status = self._job_status()
        mirror = self._runtime.mirror
        table = mirror.table_by_id(progress.table_id, progress.newest)
        files = [] if table is None else mirror.data_files(table, progress.newest)
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
        """Its state, size and lag."""
        progress = self._progress()
        return status_of(self._runtime, self._job_status(), progress, self.definition)

    def snapshot_for(self, freshness: str) -> int:
        """The snapshot that a search shows: the same as long as the table is."""
        progress = self._progress()
        if progress.watermark is None:
            raise self._unavailable(progress)
        if freshness != LATEST and not progress.is_fresh:
            self._check_history(progress, progress.watermark)
            return progress.watermark
        return max(progress.changed, progress.altered, progress.watermark)

    @property
    def watermark(self) -> int | None:
        """The snapshot that it reflects."""
        return self._job_status().watermark

    def wait(self, snapshot: int | None = None, timeout: Seconds | None = None) -> None:
        """Return when it reflects a snapshot, by default the newest.

        If no process serves the lake, this one does the work.
        """
        self._progress()  # not another one of its name, if it was dropped
        self._context.jobs.wait(self.table, self.name, snapshot, timeout)

    def rebuild(self) -> None:
        """Rebuild it from the table's rows, here and now; searches go on meanwhile."""
        progress = self._progress()
        if progress.watermark is None:
            self.wait()
        self._context.do(tending(progress.table_id, self._job_id, anew=True))

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
        from tailrace.indexes.batch_search import search_many

        if not is_spark(queries):
            raise InvalidError(f"search_many takes a Spark DataFrame, not {show(queries)}")
        check_limit(limit)
        reader, _, _ = self._reader(None, freshness, at, stale_ok=False)
        return search_many(self._runtime, reader.snapshot, queries, column, limit)


def check_freshness(freshness: object) -> None:
    """Raise unless freshness is "indexed" or "latest"."""
    if freshness not in (INDEXED, LATEST):
        raise InvalidError(f'freshness is "indexed" or "latest", not {show(freshness)}')


def check_limit(limit: object) -> None:
    """Raise unless a limit is a number of rows that a search may return."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
        raise InvalidError(f"a limit is a whole number from 1 to {MOST}, not {show(limit)}")


class TailTooLongError(UnavailableError):
    """More rows are not indexed yet than a search may read."""
