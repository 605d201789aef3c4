"""The lake: the one object that holds the parts together, and that users begin with.

Long because every public call of a lake is here, with its documentation; the work is elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.arguments import (
    Count,
    Name,
    Port,
    Seconds,
    SnapshotId,
    TableName,
    TaskId,
    checked,
    show,
)
from tailrace.catalog import configuration
from tailrace.clock import Clock
from tailrace.closing import Closing
from tailrace.configuration import Configuration, changed
from tailrace.errors import Action, Fix, InvalidError, NotFoundError
from tailrace.indexes.definition import KINDS
from tailrace.indexes.segment import IndexLayer
from tailrace.log import get_logger, log_to_stderr
from tailrace.parts import CATALOG_PARTS
from tailrace.propagation.compacting import Compaction, compact
from tailrace.propagation.consumer import check_outside, register_module
from tailrace.propagation.history import Usage, usage
from tailrace.propagation.job import Job
from tailrace.propagation.jobs import Jobs, seconds
from tailrace.propagation.layer import JobLayer
from tailrace.propagation.maintenance import do_now
from tailrace.propagation.node import NodeStatus, live_nodes, serving_nodes
from tailrace.propagation.service import Service
from tailrace.propagation.serving import Serving, wait_for_signal
from tailrace.propagation.task_status import TaskStatus, cancel_task, task_statuses
from tailrace.propagation.task_types import PURGE, SWEEP, TaskResult, purge_of, sweep_of
from tailrace.propagation.until_fresh import UntilFresh
from tailrace.settings import Settings
from tailrace.store import lookup
from tailrace.store.commit import outcome
from tailrace.store.names import is_hidden, split_name
from tailrace.store.opening import open_runtime
from tailrace.store.purge import Purge, nothing_to_do, purges
from tailrace.store.runtime import TenantRuntime
from tailrace.store.snapshots import Snapshot, snapshots
from tailrace.store.sweep import Sweep
from tailrace.store.table import Table
from tailrace.store.tasks import NewTask
from tailrace.store.transaction import Heartbeat, Transaction

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tailrace.indexes.index import Index
    from tailrace.indexes.indexes import Indexes
    from tailrace.sql.result import Result
    from tailrace.store.schema import TableInfo
    from tailrace.views.refresh.planner import Explanation
    from tailrace.views.view import View
    from tailrace.views.views import Views

log = get_logger("tailrace.lake")

# Imported by the first job of their kind: what only lists and writes starts sooner without.
register_module("view", "tailrace.views.consumer")
register_module("replica", "tailrace.replicas")
for _kind in KINDS:
    register_module(_kind, "tailrace.indexes.consumer")


@checked
def connect(
    lake: str | Path,
    *,
    data: str | Path | None = None,
    spark: SparkSession | None = None,
    tenant: Name = lookup.DEFAULT_TENANT,
    storage_options: Mapping[str, Any] | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    on_step: Callable[[str], None] | None = None,
) -> Lake:
    """Open a lake, and create it if there is none.

    `lake` is a directory (a SQLite catalog and objects beside it) or `postgresql://user@host/db`.
    `data` is where the objects lie: a directory, `file://…` or `s3://bucket/prefix`; needed to
    create a lake on PostgreSQL. `storage_options` are obstore's: `endpoint`, `access_key_id`, …;
    what is not given comes from the environment. Spark starts at the first call that needs it,
    unless a session is given. A `tenant` sees and touches its own schemas and jobs only.
    """
    if spark is not None and not hasattr(spark, "createDataFrame"):
        raise InvalidError(f"connect(spark=…) takes a SparkSession, not {show(spark)}")
    runtime = open_runtime(
        lake,
        data,
        parts=CATALOG_PARTS,
        layers=(JobLayer(), IndexLayer()),
        tenant=tenant,
        spark=spark,
        storage_options=storage_options,
        settings=settings or Settings(),
        clock=clock,
        step=on_step or (lambda _: None),
    )
    return Lake(runtime)


@checked
class Lake(Closing):
    """An open lake; see `connect`. Safe to use from several threads."""

    def __init__(self, runtime: TenantRuntime) -> None:
        self._runtime = runtime
        self._heartbeat = Heartbeat(runtime.database, runtime.clock)
        self.jobs = Jobs(runtime, self.transaction, self._run_some)
        self._services: list[Service | Serving] = []
        # What `run_until_fresh` has left: see `Service`.
        self._upkept: datetime | None = None
        self._seen: int | None = None

    @property
    def runtime(self) -> TenantRuntime:
        """What it works with, for programs that show or extend it."""
        return self._runtime

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started if there is none yet."""
        return self._runtime.spark()

    @property
    def snapshot(self) -> int:
        """The number of the newest snapshot."""
        return self._runtime.mirror.newest()

    def snapshots(self) -> list[Snapshot]:
        """All snapshots, oldest first."""
        with self._runtime.database.read() as connection:
            return snapshots(connection, self._runtime.tenant)

    def sql(self, text: str, args: Mapping[str, Any] | None = None) -> Result:
        """Run a statement: a query in Spark SQL, or one about the lake.

        lake.sql("SELECT customer, sum(amount) FROM sales.orders GROUP BY customer").to_df()
        lake.sql("DELETE FROM sales.orders WHERE id = :id", {"id": 4}).snapshot

        Several, with semicolons between them, run one after the other; the last one's result is
        returned. See docs/sql.md.
        """
        from tailrace.sql.statements import run

        return run(self, text, args)

    def schemas(self) -> list[str]:
        """The names of all schemas."""
        newest, tenant = self._runtime.mirror.newest(), self._runtime.tenant
        return self._runtime.mirror.read_at(
            newest, lambda connection: lookup.list_schemas(connection, newest, tenant)
        )

    def tables(self, at: int | None = None) -> list[str]:
        """The names of all tables but hidden ones, with their schemas; now, or at a snapshot."""
        moment, tenant = self._runtime.mirror.moment(at), self._runtime.tenant
        names = self._runtime.mirror.read_at(
            moment, lambda connection: lookup.list_tables(connection, moment, tenant)
        )
        return [f"{schema}.{name}" for schema, name in names if not is_hidden(name)]

    def table(self, name: TableName) -> Table:
        """A table: `"sales.orders"`, or `"orders"` in the schema `main`."""
        schema, plain = split_name(name)
        mirror, tenant = self._runtime.mirror, self._runtime.tenant
        newest = mirror.newest()
        if mirror.find_table(schema, plain, newest, tenant) is None:
            if mirror.find_view(schema, plain, newest, tenant) is not None:
                fix = Fix(Action.READ_VIEW, name)
                raise InvalidError(f"{schema}.{plain} is a view", fix=fix)
            raise NotFoundError(f"there is no table {schema}.{plain}", fix=Fix(Action.LIST_TABLES))
        return Table(self._runtime, schema, plain, begin=self.transaction)

    def changed_tables(self, since: SnapshotId) -> list[tuple[int, int]]:
        """Ids of the tables whose rows changed after a snapshot, and when they did last."""
        with self._runtime.database.read() as connection:
            return lookup.changed_tables(connection, since, self._runtime.tenant)

    def transaction(self, *, idempotency_key: Name | None = None) -> Transaction:
        """Begin a transaction: `with lake.transaction() as txn: txn.table(…).append(…)`.

        It commits at the end of the block, all tables as one snapshot; an error rolls back. Of
        those with the same `idempotency_key`, the first is committed; the others have no effect,
        and end with the snapshot of the first. So whoever is not sure whether something was done
        can do it again. A key is remembered for as long as history is kept.
        """
        return Transaction(self._runtime, self._heartbeat, idempotency_key=idempotency_key)

    def outcome(self, transaction_id: str) -> int | None:
        """The snapshot as which a transaction committed, or None if it has not.

        For one that ended with CommitUnknownError; None is then final: nothing was done.
        """
        return outcome(self._runtime, transaction_id)

    # --- what holds for the whole lake --------------------------------------------------------

    @property
    def configuration(self) -> Configuration:
        """How long the lake keeps things and waits for them, whoever has it open."""
        with self._runtime.database.read() as connection:
            return configuration.read(connection)

    def configure(self, **changes: timedelta) -> Configuration:
        """Change the lake's configuration: `lake.configure(snapshot_retention=timedelta(days=30))`.

        For the lake's owner, the default tenant. Others that have the lake open learn of it
        within minutes.
        """
        self._check_owner("configure")
        with self._runtime.database.lock() as connection:
            wanted = changed(configuration.read(connection), changes)
            configuration.write(connection, wanted)
        self._runtime.database.commit_timeout = wanted.commit_timeout
        return wanted

    def _check_owner(self, what: str) -> None:
        if self._runtime.tenant != lookup.DEFAULT_TENANT:
            raise InvalidError(
                f"lake.{what}() concerns all tenants: it is for the lake's owner, who connects "
                "without tenant="
            )

    def create_schema(self, name: Name) -> int:
        """Create a schema."""
        with self.transaction() as txn:
            txn.create_schema(name)
        return txn.snapshot

    def drop_schema(self, name: Name) -> int:
        """Drop an empty schema."""
        with self.transaction() as txn:
            txn.drop_schema(name)
        return txn.snapshot

    def create_table(
        self,
        name: TableName,
        columns: Any,
        *,
        primary_key: Iterable[Name] | Name | None = None,
        indexes: Mapping[Name, Mapping[str, Any]] | None = None,
    ) -> Table:
        """Create a table.

        Columns are a dict of Spark type names (`{"id": "bigint", "note": "string not null"}`), an
        Arrow schema or a Spark schema. A schema that the name mentions must exist. Indexes are
        created in the same commit: `{"note_ft": {"using": "fulltext", "columns": ["note"]}}`, with
        the arguments of `create_index`.
        """
        with self.transaction() as txn:
            txn.create_table(name, columns, primary_key=primary_key)
            for index, described in (indexes or {}).items():
                try:
                    self.add_index(txn, name, index, **described)
                except TypeError as error:
                    raise InvalidError(
                        f'the index {index!r} is described as {{"using": "fulltext", "columns": '
                        '["note"]}, and may have options, trigger and priority'
                    ) from error
        return self.table(name)

    def drop_table(self, name: TableName, *, cascade: bool = False) -> int:
        """Drop a table, and its indexes. Older snapshots still have it.

        Refused while views read it; with `cascade` they are dropped, too.
        """
        with self.transaction() as txn:
            txn.info(name)
            for index in self._indexes.of_table(name):
                self.jobs.unregister(index.table, index.name, txn=txn)
            if cascade:
                for view in self._views.readers_of(txn.info(name).id):
                    if txn.find_view(view) is not None or view in self._views.names():
                        self._views.drop(view, cascade=True, txn=txn)
            txn.drop_table(name)
        return txn.snapshot

    # --- views ------------------------------------------------------------------------------

    @cached_property
    def _views(self) -> Views:
        from tailrace.views.view import Context
        from tailrace.views.views import Views

        return Views(
            Context(
                runtime=self._runtime,
                jobs=self.jobs,
                begin=self.transaction,
                run_some=self._run_some,
            )
        )

    def create_view(
        self,
        name: TableName,
        query: str,
        *,
        trigger: str | Mapping[str, Any] | None = None,
        policy: str = "auto",
        priority: int = 0,
        replace: bool = False,
    ) -> View:
        """Create a materialized view of a query in Spark SQL.

        lake.create_view("sales.by_customer",
            "SELECT customer, sum(amount) AS total FROM sales.orders GROUP BY customer")

        It is built and kept fresh by `serve()`, `run_until_fresh()` or its own `refresh()`.
        `trigger` is "default", "greedy" or a dict as in a job's spec; `policy` is "auto" (the
        cheapest way that is right), "incremental" (an error where it can't be) or "full". With
        `replace`, a view of that name stays as it is until the new one is built.
        """
        return self._views.create(
            name, query, trigger=trigger, policy=policy, priority=priority, replace=replace
        )

    def view(self, name: TableName) -> View:
        """A view: `"sales.by_customer"`."""
        return self._views.get(name)

    def views(self) -> list[str]:
        """The names of all views, with their schemas."""
        return self._views.names()

    def drop_view(self, name: TableName, *, cascade: bool = False) -> None:
        """Drop a view. Refused while other views read it, unless `cascade` drops them, too."""
        self._views.drop(name, cascade=cascade)

    def explain(self, query: str, *, policy: str = "auto") -> Explanation:
        """How a view of this query would be kept fresh."""
        return self._views.explain(query, policy=policy)

    # --- indexes ----------------------------------------------------------------------------

    @cached_property
    def _indexes(self) -> Indexes:
        from tailrace.indexes.index import Context
        from tailrace.indexes.indexes import Indexes
        from tailrace.indexes.reader import Opener

        runtime = self._runtime
        return Indexes(
            Context(
                runtime=runtime,
                jobs=self.jobs,
                begin=self.transaction,
                do=self._do,
                opener=Opener(
                    runtime.storage,
                    cache_bytes=runtime.settings.cache_bytes,
                    kept=runtime.kept_files,
                ),
            )
        )

    def create_index(
        self,
        table: TableName,
        name: Name,
        *,
        using: str,
        columns: Sequence[Name] | Name,
        options: Mapping[str, Any] | None = None,
        trigger: str | Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> Index:
        """Create a full-text or a vector index.

        lake.create_index("sales.orders", "note_ft", using="fulltext", columns=["note"])
        lake.create_index("docs.page", "emb", using="vector", columns=["embedding"],
            options={"metric": "cosine"})

        It is built and kept up to date by `serve()`, `run_until_fresh()` or its own `wait()`.
        Options of full text: tokenizer ("default", "simple", "ngram"), language, weights,
        positions; of vectors: metric ("cosine", "inner_product", "l2"), dimension, recall.
        """
        with self.transaction() as txn:
            self.add_index(
                txn, table, name, using=using, columns=columns, options=options,
                trigger=trigger, priority=priority,
            )  # fmt: skip
        return self.index(table, name)

    def add_index(
        self,
        txn: Transaction,
        table: TableName,
        name: Name,
        *,
        using: str,
        columns: Sequence[str] | str,
        options: Mapping[str, Any] | None = None,
        trigger: str | Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> None:
        """The same as part of a transaction, which may create the table, too."""
        from tailrace.indexes.definition import NewIndex

        new = NewIndex(
            table=table, name=name, using=using, columns=columns, options=options,
            trigger=trigger, priority=priority,
        )  # fmt: skip
        self._indexes.add(txn, new)

    def index(self, table: TableName, name: Name) -> Index:
        """An index of a table."""
        return self._indexes.get(table, name)

    def find_index(self, name: TableName) -> Index:
        """An index by its name, with its table before it if several have that name."""
        return self._indexes.named(name)

    def indexes(self, table: TableName | None = None) -> list[Index]:
        """All indexes, or those of a table."""
        return self._indexes.all() if table is None else self._indexes.of_table(table)

    def drop_index(self, table: TableName, name: Name) -> None:
        """Drop an index."""
        self._indexes.drop(table, name)

    def search(
        self,
        table: TableName,
        *,
        text: str | None = None,
        vector: object = None,
        limit: int = 10,
        where: str | None = None,
        columns: Sequence[Name] | None = None,
        freshness: str = "indexed",
        at: int | None = None,
    ) -> pa.Table:
        """Search a table by text, by a vector, or by both at once, whichever index it has.

        With both, a row's score is by its places in the two results (reciprocal rank fusion).
        """
        return self._indexes.search(
            table,
            text,
            vector,
            limit,
            where=where,
            columns=columns,
            freshness=freshness,
            at=at,
        )

    def sweep(self) -> Sweep:
        """Delete the objects of transactions that ended without a commit. For the lake's owner."""
        check_outside("lake.sweep()")
        self._check_owner("sweep")
        return sweep_of(self._do(SWEEP))

    def purge(self) -> Purge:
        """Remove snapshots older than `configuration.snapshot_retention` that no job needs.

        Also what only they showed: rows of the catalog at once, objects after a time for readers
        to finish. Says what it did, and what needs the oldest snapshot that is left. For the
        lake's owner.
        """
        check_outside("lake.purge()")
        self._check_owner("purge")
        nothing = nothing_to_do(self._runtime)
        return purge_of(self._do(PURGE)) if nothing is None else nothing

    def maintain(
        self,
        name: TableName | None = None,
        *,
        where: str | None = None,
        full: bool = False,
        dry_run: bool = False,
    ) -> list[Compaction]:
        """Compact what is worth it, here and now: a table or view, or all of this tenant's.

        lake.maintain("orders", where="day >= '2026-11-01'")

        Small files become larger ones, sorted by the primary key, and deleted rows leave the files
        of the newest snapshot. `where`: only files that may have such rows. `full` leaves no file
        small, or overlapping with another. `dry_run` only says what would be done, and why.
        A lake that is served does this by itself.
        """
        check_outside("lake.maintain()")
        done: list[Compaction] = []
        for shown, table in self._kept_tables(name):
            done += compact(
                self._runtime,
                self._heartbeat,
                table,
                shown,
                where=where,
                full=full,
                dry_run=dry_run,
            )
        return done

    def _kept_tables(self, name: str | None) -> Iterator[tuple[str, TableInfo]]:
        """The tables that rows are in, of a table or view or of all, by the names of those."""
        names = [*self.tables(), *self.views()] if name is None else [name]
        mirror, tenant = self._runtime.mirror, self._runtime.tenant
        newest = mirror.newest()
        for one in names:
            is_view = mirror.find_view(*split_name(one), newest, tenant) is not None
            if is_view and name is None and self.view(one).watermark is None:
                continue  # it has no rows yet
            shown = self.view(one).name if is_view else self.table(one).name
            stored = self.view(one).reading()[0] if is_view else shown
            info = mirror.find_table(*split_name(stored), newest, tenant)
            if info is not None:
                yield shown, info

    def tasks(self, limit: Count = 100) -> list[TaskStatus]:
        """The last tasks of maintenance, newest first: what waits, runs, is done or has failed.

        Those of this tenant's tables; the lake's owner also gets those of the lake as a whole.
        """
        with self._runtime.database.read() as connection:
            return task_statuses(connection, self._runtime.tenant, limit)

    def cancel_task(self, task_id: TaskId) -> None:
        """Cancel a task that waits or runs: from now on, nothing is written for it.

        If what it would do is still due, it may be entered again.
        """
        with self._runtime.database.lock() as connection:
            now = self._runtime.clock.now()
            cancel_task(connection, self._runtime.tenant, task_id, now)

    def _do(self, task: NewTask) -> TaskResult:
        """Do a task of maintenance here and now."""
        return do_now(self._runtime, self._heartbeat, task)

    def purges(self, limit: Count = 100) -> list[Purge]:
        """The last purges that removed something, newest first."""
        with self._runtime.database.read() as connection:
            return [self._shown(done) for done in purges(connection, limit)]

    def _shown(self, done: Purge) -> Purge:
        """A tenant is not told of the jobs of others."""
        if self._runtime.tenant == lookup.DEFAULT_TENANT or done.held_by is None:
            return done
        return replace(done, held_by="a job or a transaction")

    # --- keeping derived data fresh ---------------------------------------------------------

    def run_until_fresh(self, timeout: Seconds | timedelta | None = None) -> None:
        """Run jobs here and now until each reflects the newest change of its sources.

        Triggers and pauses between tries are ignored, paused jobs skipped. JobFailedError names
        the jobs that still fail, after the others are fresh. `timeout` is in seconds.
        """
        tenant = self._runtime.tenant
        self._run_some(lambda job: job.tenant == tenant, timeout, compacts=True)

    def _run_some(
        self,
        wanted: Callable[[Job], bool],
        timeout: float | timedelta | None,
        *,
        compacts: bool = False,
    ) -> None:
        check_outside("lake.run_until_fresh()")
        limit = seconds(timeout)
        service = UntilFresh(
            self._runtime,
            self._heartbeat,
            wanted,
            compacts=compacts,
            upkept=self._upkept,
            seen=self._seen,
        )
        with closing(service):
            self._services.append(service)
            try:
                service.run(limit)
            finally:
                self._services.remove(service)
                self._upkept = service.housekeeping.last
                self._seen = service.maintenance.monitor.seen

    def is_served(self) -> bool:
        """Whether a process serves this lake at the moment, and is able to."""
        with self._runtime.database.read() as connection:
            return bool(live_nodes(connection, self._runtime.clock, serving=True))

    def nodes(self) -> list[NodeStatus]:
        """The processes that serve this lake; `fault` says why one stands back."""
        with self._runtime.database.read() as connection:
            return serving_nodes(connection, self._runtime.clock)

    def serving(self, *, metrics_port: Port | None = None, host: str = "127.0.0.1") -> Serving:
        """Run the jobs of all tenants in the background, until closed.

        with lake.serving():
            ...
        """
        serving = Serving(self._runtime, self._heartbeat, host=host, port=metrics_port)
        self._services = [one for one in self._services if not one.closed] + [serving]
        return serving

    def serve(self, port: Port = 8707, *, host: str = "127.0.0.1") -> None:
        """Run the jobs of all tenants until SIGINT or SIGTERM; metrics for Prometheus on a port."""
        log_to_stderr()
        with self.serving(metrics_port=port, host=host) as serving:
            log.info("serving", metrics=f"http://{host}:{serving.metrics_port}/metrics")
            wait_for_signal(lambda: serving.closed)
            log.info("stopping", running=serving.service.scheduler.running)

    def usage(self, since: date | None = None) -> list[Usage]:
        """Iterations, seconds, rows and bytes of this tenant's jobs, by day; of the last 30."""
        since = since or self._runtime.clock.now().date() - timedelta(days=30)
        with self._runtime.database.read() as connection:
            return usage(connection, self._runtime.tenant, since)

    def close(self) -> None:
        """Stop what runs here and close the catalog. The Spark session stays: it may be shared."""
        check_outside("lake.close()")
        for service in list(self._services):
            service.close()
        self._heartbeat.close()
        self._runtime.database.close()
