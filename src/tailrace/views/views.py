"""`lake.create_view` and what users hold of a view."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlalchemy as sa
from sqlglot import exp

from tailrace.arguments import Count, Seconds, checked
from tailrace.catalog import tables as t
from tailrace.errors import InvalidError, JobFailedError, NotFoundError, UnavailableError
from tailrace.propagation import history, joblog
from tailrace.propagation.freshness import Freshness
from tailrace.propagation.history import Iteration
from tailrace.propagation.inside import check_outside
from tailrace.propagation.job import Job, JobRecord, State
from tailrace.propagation.jobs import VIEW, Jobs, home_of
from tailrace.propagation.status import JobStatus
from tailrace.store import lookup
from tailrace.store.runtime import Runtime
from tailrace.store.schema import (
    OWN_PREFIX,
    check_name,
    fold,
    is_hidden,
    quoted_name,
    split_name,
)
from tailrace.store.spark_text import check_printed, check_registered
from tailrace.store.table import Table
from tailrace.store.transaction import Transaction
from tailrace.views.consumer import check_policy
from tailrace.views.definition import (
    Definition,
    Find,
    Input,
    ViewInput,
    define,
    moment_text,
    new_table_name,
    output_names,
    reader_of,
    reader_sql,
    spelled_out,
    table_input,
    unbuilt_input,
)
from tailrace.views.refresh.choose import Strategy
from tailrace.views.refresh.explain import Explanation, explain
from tailrace.views.refresh.planner import FULL
from tailrace.views.refresh.verify import Report, verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Trigger = str | Mapping[str, Any] | None
# How often a full refresh waits for others to finish theirs.
_TRIES = 5
# What a reader's query calls the stored table: no column has that name.
_READ = f"{OWN_PREFIX}read"


@dataclass(frozen=True, kw_only=True)
class Context:
    """What views need of the lake that they are in."""

    runtime: Runtime
    jobs: Jobs
    begin: Callable[[], Transaction]
    run_some: Callable[[Callable[[Job], bool], float | None], None]


@checked
class View:
    """One materialized view: got from `lake.create_view(…)` or `lake.view(name)`."""

    def __init__(self, context: Context, name: str) -> None:
        self._context = context
        self._schema, self._plain = split_name(name)
        self.name = f"{self._schema}.{self._plain}"
        self._home = home_of(name)

    def __repr__(self) -> str:
        return f"<tailrace.View {self.name}>"

    # --- describe ---------------------------------------------------------------------------

    def _job(self) -> JobRecord:
        with self._context.runtime.database.read() as connection:
            job = joblog.find(connection, self._context.runtime.tenant, self._home, VIEW)
        if job is None or job.kind != VIEW:
            raise NotFoundError(f"there is no view {self.name}: lake.views() lists what there is")
        return job

    @property
    def _options(self) -> dict[str, Any]:
        return self._job().spec.consumer

    @property
    def query(self) -> str:
        """The query, with every * spelled out."""
        return str(self._options["query"])

    @property
    def policy(self) -> str:
        """auto, incremental or full."""
        return str(self._options["policy"])

    @property
    def is_checked(self) -> bool:
        """Whether Spark has read its query: at its creation, if a session was there, or since."""
        return bool(self._options.get("checked", True)) or self._job().watermark is not None

    @property
    def watermark(self) -> int | None:
        """The snapshot that it reflects; None before it is built."""
        return self.status().watermark

    def status(self) -> JobStatus:
        """How its job is: state, watermark, last error."""
        self._job()
        return self._context.jobs.status(self._home, VIEW)

    @property
    def columns(self) -> dict[str, str]:
        """Names and Spark types of the columns."""
        from tailrace.spark_sql.types import spark_type

        table = self._stored().info
        shown = [item.name for item in self._reader().selects]
        return {name: spark_type(table.column(name).type) for name in shown}

    def history(self, limit: Count = 100) -> list[Iteration]:
        """Its last refreshes, newest first."""
        return list(self._context.jobs.history(self._home, VIEW, limit=limit))

    # --- read -------------------------------------------------------------------------------

    def _stored(self) -> Table:
        schema, plain = split_name(self._options["table"])
        runtime = self._context.runtime
        with runtime.database.read() as connection:
            newest = lookup.newest_snapshot(connection)
            there = lookup.table_exists(connection, schema, plain, newest, runtime.tenant)
        if not there:
            raise InvalidError(
                f"the view {self.name} has not been built: refresh() it, or let serve() do it"
            )
        return Table(runtime, schema, plain, begin=self._context.begin)

    def _reader(self) -> exp.Select:
        made = self._definition()
        return reader_of(made, [c.name for c in self._stored().info.columns])

    def reading(self) -> tuple[str, exp.Select]:
        """The stored table's name, and the query that shows its rows, for other readers."""
        return str(self._options["table"]), self._reader()

    def to_df(self, at: int | None = None) -> DataFrame:
        """Its rows as a Spark DataFrame; at a snapshot, as they were then."""
        stored = self._stored().to_df(at)
        text = reader_sql(self._reader(), _READ, "spark").replace("{", "{{").replace("}", "}}")
        named = text.replace(f"`{_READ}`", "{stored}")
        return self._context.runtime.spark().sql(named, stored=stored)

    def to_arrow(self, at: int | None = None) -> pa.Table:
        """Its rows as an Arrow table. A small one without a LIMIT is read without Spark."""
        reader = self._reader()
        if reader.args.get("limit") or reader.args.get("offset"):
            return self.to_df(at).toArrow()
        rows = self._stored().to_arrow(at)
        where = reader.args.get("where")
        if where is not None:
            rows = rows.filter(rows.column(where.this.name))
        return rows.select([item.name for item in reader.selects])

    # --- keep fresh -------------------------------------------------------------------------

    def refresh(self, timeout: Seconds | None = None, *, full: bool = False) -> Iteration:
        """Bring it to the newest snapshot, here and now; returns what was done.

        With `full`, all of it is computed again, whatever its policy says and even if no source
        has changed.
        """
        check_outside("view.refresh()")
        job = self._job()
        if full:
            job = self._ask_for_all(job, timeout)
        else:
            done = self._nothing_to_do(job)
            if done is not None:
                return done
            self._move_with_time(job)
        if job.state == State.ERROR:
            # It waits for a person: here is one. What it failed at may be gone by now.
            self._context.jobs.resume(self._home, VIEW)
        before = self._last_iteration(job.id)
        self._run(job, timeout)
        job = self._job()
        if job.state in (State.PAUSED, State.CANCELED):
            raise InvalidError(f"the view {self.name} is {job.state}: resume its job first")
        done = self._last_iteration(job.id)
        if done is None or done == before:
            return self._not_run(job)
        return done

    def _last_iteration(self, job_id: int) -> Iteration | None:
        runtime = self._context.runtime
        with runtime.database.read() as connection:
            found = history.iterations(
                connection, runtime.tenant, home=None, job_id=job_id, limit=1
            )
        return found[0] if found else None

    def _not_run(self, job: JobRecord) -> Iteration:
        """What to say of a refresh that has done nothing: another may have done it just before."""
        status = self.status()
        if status.is_fresh:
            return self._unchanged(job, status.watermark)
        reason = status.error or status.note or "it could not run"
        raise JobFailedError(f"the view {self.name} was not refreshed: {reason}")

    def _run(self, job: JobRecord, timeout: float | None) -> None:
        """Run its job, and those that it stands on, until they are fresh."""
        with self._context.runtime.database.read() as connection:
            wanted = {job.id, *joblog.upstream_of(connection, [job.id]).get(job.id, ())}
        self._context.run_some(
            lambda job: job.id in wanted or (job.kind == VIEW and job.home == self._home), timeout
        )

    def _ask_for_all(self, job: JobRecord, timeout: float | None) -> JobRecord:
        """Note that the next run computes all of it; what runs at the moment is waited for."""
        for _ in range(_TRIES):
            if job.state in (State.PAUSED, State.CANCELED):
                raise InvalidError(f"the view {self.name} is {job.state}: resume its job first")
            last = replaced(job.last, memory={**job.last.memory, FULL: True})
            # An iteration that failed need not be tried again: this one takes its place.
            also = {"claim_to": None, "epoch": job.epoch + 1}
            if self._make_stale(job, status=last.to_json(), **also):
                return job
            self._run(job, timeout)
            job = self._job()
        raise UnavailableError(f"the view {self.name} is being refreshed all the time: try later")

    def _move_with_time(self, job: JobRecord) -> None:
        """If a function of the moment says something else by now, all of it is stale."""
        said = job.last.memory.get("moment")
        moments = tuple(job.spec.consumer.get("moment", ()))
        now = self._context.runtime.clock.now()
        if said and said != moment_text(moments, now) and job.claim_to is None:
            self._make_stale(job)

    def _make_stale(self, job: JobRecord, **values: Any) -> bool:
        """Forget what it reflects, unless it is running."""
        c = t.job.c
        # Not only the epoch: a run that has ended since leaves that alone, and changed its row.
        conditions = (c.node_id.is_(None), c.lsn == job.lsn)
        with self._context.runtime.database.lock() as connection:
            return joblog.write(connection, job.id, *conditions, watermark=None, **values)

    def _nothing_to_do(self, job: JobRecord) -> Iteration | None:
        """A record without a run, if no source has changed since the watermark."""
        runtime = self._context.runtime
        if job.watermark is None or job.claim_to is not None or job.state != State.COMPLETED:
            return None
        with runtime.database.read() as connection:
            waiting = _built_beside(connection, job)
            freshness = Freshness(connection, [job])
        if waiting or "moment" in self._options or not freshness.is_fresh(job):
            return None
        return self._unchanged(job, freshness.newest)

    def _unchanged(self, job: JobRecord, newest: int | None) -> Iteration:
        runtime = self._context.runtime
        now = runtime.clock.now()
        assert newest is not None
        return Iteration(
            job_id=job.id,
            tenant=runtime.tenant,
            sources=(),
            from_snapshot=job.watermark,
            to_snapshot=newest,
            kind="tail",
            node_id="",
            started_at=now,
            ended_at=now,
            seconds=0.0,
            strategy=str(Strategy.NOTHING),
        )

    # --- look inside ------------------------------------------------------------------------

    def _definition(self) -> Definition:
        return _define(self._context, self.query)

    def explain(self) -> Explanation:
        """How the next refresh will be done, and why not better."""
        job = self._job()
        options = job.spec.consumer
        made = _define(self._context, options["query"])
        memory, stored = job.last.memory, None
        if "types" in memory:
            with self._context.begin() as txn:
                stored = txn.info(options["table"]).columns
        return explain(
            self._context.runtime,
            self.name,
            made,
            policy=options["policy"],
            watermark=job.watermark,
            memory=memory,
            stored=stored,
        )

    def verify(self) -> Report:
        """Compare its rows with a recompute of its query at its watermark."""
        job = self._job()
        if job.watermark is None:
            raise InvalidError(f"the view {self.name} has not been built: refresh() it first")
        return verify(self._context.runtime, job)


class Views:
    """The views of a lake, as one tenant sees them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def create(
        self,
        name: str,
        query: str,
        *,
        trigger: Trigger = None,
        policy: str = "auto",
        priority: int = 0,
        replace: bool = False,
        txn: Transaction | None = None,
    ) -> View:
        """Register a view; see `Lake.create_view`."""
        check_policy(policy)
        schema, plain = split_name(name)
        check_name(plain, "view")
        if is_hidden(plain):
            raise InvalidError(f"the name {plain!r} is reserved: choose another")
        if txn is not None:
            self._create(txn, name, query, trigger, policy, priority, replace=replace)
        else:
            with self._context.begin() as own:
                self._create(own, name, query, trigger, policy, priority, replace=replace)
        return View(self._context, quoted_name(schema, plain))

    def _create(
        self,
        txn: Transaction,
        name: str,
        query: str,
        trigger: Trigger,
        policy: str,
        priority: int,
        *,
        replace: bool,
    ) -> None:
        runtime = self._context.runtime
        home = home_of(name)
        with runtime.database.read() as connection:
            old = joblog.find(connection, runtime.tenant, home, VIEW)
            above = [] if old is None else joblog.standing_on(connection, old.id)
        if old is not None and not replace:
            raise InvalidError(f"the view {name} exists already: replace=True builds it anew")
        if (fold(split_name(name)[0]), fold(split_name(name)[1])) in txn.list_tables():
            raise InvalidError(f"{name} is a table: choose another name for the view")
        if old is not None and above:
            names = ", ".join(job.home for job in above[:5])
            raise InvalidError(f"{name} cannot be replaced while other views read it ({names})")
        views: dict[str, int] = {}
        find = _finder(self._context, txn, views)
        text = spelled_out(query, find)
        made = define(text, find)
        if policy == "incremental" and made.layout is None:
            raise InvalidError(
                f"this view cannot be refreshed incrementally, as the policy asks: {made.reason}"
            )
        check_printed(made.tree)
        checked = self._check_with_spark(made)
        sources = _base_tables(made)
        token = secrets.token_hex(4)
        options: dict[str, Any] = {
            "kind": VIEW,
            "view": quoted_name(*split_name(name)),
            "query": text,
            "policy": policy,
            "table": new_table_name(name, token),
            "fields": made.fields,
            "checked": checked,
        }
        if views:
            options["views"] = views
        if made.moments:
            options["moment"] = list(made.moments)
        job_name = VIEW
        if old is not None:
            options["replaces"] = old.id
            job_name = f"{VIEW} {token}"
        spec = {
            "trigger": _trigger(trigger),
            "priority": priority,
            "sources": sources,
            "consumer": options,
        }
        if txn.find_view(name) is not None and old is None:
            raise InvalidError(f"{name} is a view of another kind: choose another name")
        self._context.jobs.register(
            name, job_name, spec, txn=txn, upstream=list(views.values()), free_home=True
        )

    def _check_with_spark(self, made: Definition) -> bool:
        """What only Spark knows of a query, if a session is there anyway: functions and types."""
        session = self._context.runtime.spark.if_there()
        if session is None:
            return False
        check_registered(self._context.runtime.spark, made.functions)
        check_with_spark(session, made)
        return True

    def get(self, name: str) -> View:
        """A view; NotFoundError if there is none."""
        view = View(self._context, name)
        view.status()
        return view

    def names(self) -> list[str]:
        """The names of all views."""
        c = t.job.c
        runtime = self._context.runtime
        wanted = (c.tenant == runtime.tenant, c.kind == VIEW, c.name == VIEW)
        with runtime.database.read() as connection:
            jobs = joblog.records(connection, *wanted)
        names = [split_name(job.spec.consumer["view"]) for job in jobs]
        return sorted(f"{schema}.{plain}" for schema, plain in names)

    def drop(self, name: str, *, cascade: bool = False, txn: Transaction | None = None) -> None:
        """Drop a view; with `cascade`, also those that read it."""
        if txn is not None:
            self.drop_in(txn, name, cascade=cascade)
            return
        with self._context.begin() as own:
            self.drop_in(own, name, cascade=cascade)

    def drop_in(self, txn: Transaction, name: str, *, cascade: bool) -> None:
        view = View(self._context, name)
        job = view._job()
        runtime = self._context.runtime
        with runtime.database.read() as connection:
            above = joblog.standing_on(connection, job.id)
            beside = _built_beside(connection, job)
        self._context.jobs.unregister(name, VIEW, cascade=cascade, txn=txn)
        for one in (job, *(above if cascade else ()), *beside):
            if one.kind != VIEW:
                continue
            shown = one.spec.consumer["view"]
            if one in beside:
                self._context.jobs.unregister(name, one.name, txn=txn)
            elif txn.find_view(shown) is not None:
                txn.drop_view(shown)

    def readers_of(self, table_id: int) -> list[str]:
        """The names of views that read a table."""
        with self._context.runtime.database.read() as connection:
            jobs = joblog.following(connection, [table_id])
        return sorted({job.spec.consumer["view"] for job in jobs if job.kind == VIEW})

    def explain(self, query: str, *, policy: str = "auto") -> Explanation:
        """How a view of this query would be kept fresh, before it is created."""
        check_policy(policy)
        with self._context.begin() as txn:
            find = _finder(self._context, txn, {})
            made = define(spelled_out(query, find), find)
        return explain(self._context.runtime, "(not created)", made, policy=policy)


# --- inside ------------------------------------------------------------------------------------


def check_with_spark(session: Any, made: Definition) -> None:
    """Let Spark read a query over empty tables of the right types."""
    from pyspark.errors import AnalysisException

    from tailrace.store.spark_faults import spark_faults

    prefix = f"tailrace_check_{secrets.token_hex(4)}_"
    names: list[str] = []
    try:
        with spark_faults():
            _empty(session, made, prefix, names).schema  # noqa: B018  (reading it is the check)
    except AnalysisException as error:
        first = str(error).partition(";")[0].partition("\n")[0]
        raise InvalidError(f"Spark cannot read the query: {first}") from error
    finally:
        for name in names:
            session.catalog.dropTempView(name)


def _empty(session: Any, made: Definition, prefix: str, names: list[str]) -> DataFrame:
    """A query over empty tables; their names are added to `names`."""
    from tailrace.spark_sql.types import spark_schema
    from tailrace.views.definition import with_tables

    own: dict[str, str] = {}
    for key, given in made.inputs.items():
        if given.view is not None:
            frame = _empty(session, given.view.definition, prefix, names)
            shown = output_names(given.view.definition) or frame.columns
            frame = frame.toDF(*shown)
        else:
            assert given.table is not None
            frame = session.createDataFrame([], spark_schema(given.table.arrow_schema))
        own[key] = f"{prefix}{len(names)}"
        names.append(own[key])
        frame.createOrReplaceTempView(own[key])
    read: DataFrame = session.sql(with_tables(made.tree, lambda key: own[key]).sql("spark"))
    return read


def _trigger(given: Trigger) -> dict[str, Any]:
    if given is None:
        return {"job_type": "default", "schedule": {}}
    if isinstance(given, str):
        return {"job_type": given, "schedule": {}}
    return dict(given)


def _built_beside(connection: sa.Connection, view: JobRecord) -> list[JobRecord]:
    """What is being built to take the place of a view."""
    c = t.job.c
    same_name = (c.tenant == view.tenant, c.home == view.home)
    return joblog.records(connection, *same_name, c.kind == VIEW, c.job_id != view.id)


def _finder(context: Context, txn: Transaction, views: dict[str, int]) -> Find:
    """How a new view's query finds what it names; views are entered in `views`."""

    def find(schema: str, name: str) -> Input:
        full = quoted_name(schema, name)
        runtime = context.runtime
        with runtime.database.read() as connection:
            job = joblog.find(connection, runtime.tenant, home_of(full), VIEW)
        if job is not None and job.kind == VIEW:
            views[fold(full)] = job.id
            options = job.spec.consumer
            return _view_input(context, job.id, options, txn)
        try:
            return table_input(txn.info(full))
        except NotFoundError as error:
            raise NotFoundError(
                f"there is no table or view {schema}.{name}: lake.tables() and lake.views() list "
                "what there is"
            ) from error

    return find


def _view_input(
    context: Context, job_id: int, options: Mapping[str, Any], txn: Transaction
) -> Input:
    made = define(options["query"], _finder(context, txn, {}))
    try:
        table = txn.info(options["table"])
    except NotFoundError:
        names = output_names(made) or []
        reader = reader_of(made, names)
        given = ViewInput(job=job_id, reader=reader, definition=made)
        return unbuilt_input(str(options["table"]), given)
    reader = reader_of(made, [c.name for c in table.columns])
    return table_input(table, ViewInput(job=job_id, reader=reader, definition=made))


def _base_tables(made: Definition) -> list[str]:
    """The tables beneath a view, near and far."""
    found: dict[str, None] = {}
    for given in made.inputs.values():
        if given.view is None:
            found[given.name] = None
        else:
            found |= dict.fromkeys(_base_tables(given.view.definition))
    return list(found)


def _define(context: Context, query: str) -> Definition:
    with context.begin() as txn:
        return define(query, _finder(context, txn, {}), context.runtime.clock.now())
