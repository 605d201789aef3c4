"""One refresh of one view: from its watermark to a snapshot, in a transaction.

Always true: afterwards the stored table is the definition's result with every source read at that
snapshot, and other views at the same label. Nothing is visible before the iteration commits.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlalchemy as sa
from sqlglot import exp

from tailrace.errors import Action, Fix, InvalidError, TailraceError
from tailrace.propagation import joblog, retry
from tailrace.propagation import tables as t
from tailrace.propagation.changes import Changes
from tailrace.propagation.consumer import JobContext
from tailrace.spark_sql import types
from tailrace.store.names import is_hidden, split_name
from tailrace.store.spark_actions import spark_faults
from tailrace.store.transaction import Transaction
from tailrace.store.workspace import Commit
from tailrace.views.definition import Definition, reader_of
from tailrace.views.incremental import stored_delta
from tailrace.views.incremental.group_states import Types
from tailrace.views.incremental.layout import Layout, Way
from tailrace.views.incremental.program import End, Leaf
from tailrace.views.jobs import VIEW
from tailrace.views.query.parse import moment_text, with_tables
from tailrace.views.refresh.apply import StoredTable
from tailrace.views.refresh.choose import AGAIN, Strategy, full_cost, history_name, plain_cost
from tailrace.views.refresh.execution import Run
from tailrace.views.refresh.on_spark import NeedsSparkError
from tailrace.views.refresh.planner import FULL, REFUSED, Planner, RefreshPlan
from tailrace.views.refresh.programs import lookup_columns, prepare
from tailrace.views.refresh.sources import SourceReads, Sources
from tailrace.views.resolve import definition_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# Changed rows up to which a plan is tiny.
_TINY_ROWS = 50_000


class Refresh:
    """See the module."""

    def __init__(self, changes: Changes, txn: Transaction, job: JobContext) -> None:
        self._changes, self._txn, self._job = changes, txn, job
        self._runtime = txn.runtime
        self._options, self._memory = job.options, job.memory
        self._moment = self._runtime.clock.now()
        self._table = str(job.options["table"])
        self._stored_table = StoredTable(txn, self._table)

    def run(self) -> str:
        """Bring the stored table to the job's snapshot; returns the strategy."""
        started = time.monotonic()
        if "types" not in self._memory:
            started += self._start_spark()
            self._build()
            self._memory.pop(FULL, None)
            again = AGAIN * (time.monotonic() - started)
            sizes = self._planner.sizes
            self._remember(Strategy.FULL, full_cost(self.definition, sizes), again, Strategy.FULL)
            return Strategy.BUILD
        self._check_sources()
        moved = self._memory.get("moment", "") != moment_text(self.definition.moments, self._moment)
        if self._sources.since is not None and not self._sources.changed and not moved:
            return Strategy.NOTHING
        try:
            strategy = self._plan_and_apply(started, moved=moved)
        except NeedsSparkError:  # more rows than fit in memory: choose again
            strategy = self._plan_and_apply(time.monotonic(), moved=moved, on_spark=True)
        self._memory["moment"] = moment_text(self.definition.moments, self._moment)
        self._memory.pop(FULL, None)
        return strategy

    def _plan_and_apply(self, started: float, *, moved: bool, on_spark: bool = False) -> Strategy:
        policy = str(self._options.get("policy", "auto"))
        rebuild = self._sources.since is None
        plan = self._planner.plan(policy, rebuild=rebuild, moved=moved, on_spark=on_spark)
        if plan.on_spark:
            started += self._start_spark()
        had_spark = self._runtime.spark.session is not None
        try:
            self._apply(plan)
        except Exception as error:
            if plan.strategy is Strategy.FULL or retry.code_of(error) != retry.INVALID:
                raise
            if isinstance(error, TailraceError) or policy == "incremental":
                raise
            # The query itself is right, since it was built: Spark refuses what rules made of it.
            self._memory[REFUSED] = f"Spark refuses: {str(error).partition(chr(10))[0][:300]}"
            return self._plan_and_apply(started, moved=moved, on_spark=True)
        if had_spark or self._runtime.spark.session is None:
            predicted = plain_cost(self.definition, plan.facts, plan.strategy)
            name = history_name(plan.strategy, plan.facts)
            self._remember(plan.strategy, predicted, time.monotonic() - started, name)
        return plan.strategy

    def _start_spark(self) -> float:
        """How long it takes to get a session: a strategy's time does not include that."""
        started = time.monotonic()
        self._runtime.spark()
        return time.monotonic() - started

    # --- what it is about -------------------------------------------------------------------

    @cached_property
    def definition(self) -> Definition:
        return definition_at(
            self._runtime,
            self._options,
            at=self._job.to,
            stored=self._txn.info,
            moment=self._moment,
        )

    def _check_sources(self) -> None:
        """Raise unless the columns that the query uses are those that the view was built on."""
        for table, columns in self._memory["columns"].items():
            schema, plain = split_name(table)
            at = self._txn.base if is_hidden(plain) else self._job.to
            info = self._runtime.mirror.find_table(schema, plain, at, self._runtime.tenant)
            now = {} if info is None else {c.name: c for c in info.columns}
            for name, was in columns.items():
                column = now.get(name)
                if column is None or [column.id, types.spark_type(column.type)] != was:
                    what = "is gone" if column is None else "is another one now"
                    raise InvalidError(
                        f"the view is invalid: the column {name!r} of {table} {what}",
                        fix=Fix(Action.CREATE_VIEW_AGAIN),
                    )

    def _used_columns(self) -> dict[str, dict[str, list[Any]]]:
        used = self.definition.fields
        used_by_source: dict[str, dict[str, list[Any]]] = {}
        for given in self.definition.inputs.values():
            assert given.table is not None
            columns = {c.name: c for c in given.table.columns}
            used_by_source[given.name] = {
                name: [columns[name].id, types.spark_type(columns[name].type)]
                for name in used.get(given.name, [])
            }
        return used_by_source

    @cached_property
    def _sources(self) -> Sources:
        return Sources(self.definition, self._changes, self._txn, self._job)

    @cached_property
    def _planner(self) -> Planner:
        sources, stored = self._sources, None
        if "types" in self._memory:
            stored = self._stored_table.info.columns
        return Planner(self._runtime, self.definition, sources.facts(), self._memory, stored)

    # --- programs ---------------------------------------------------------------------------

    def _run(self, *, small: bool, alone: bool = False) -> Run:
        sources, stored = self._sources, None
        if "types" in self._memory:
            stored = lambda: self._txn.scan(*split_name(self._table))  # noqa: E731
        # The query as written may name columns that its plan does without.
        wide = not small and self._is_plain
        return Run(
            self._runtime,
            SourceReads(sources, in_memory=small, wide=wide),
            stored=stored,
            names=self._planner.stored_names,
            # Another session does not know the functions that are registered in the user's.
            small=small and not self.definition.functions,
            tiny=sum(changes.rows for changes in sources.changed.values()) <= _TINY_ROWS,
            alone=alone,
            check=self._check_canceled,
        )

    @property
    def _is_plain(self) -> bool:
        layout = self.definition.layout
        return layout is not None and layout.is_plain

    def _check_canceled(self) -> None:
        if self._job.is_canceled():
            raise InvalidError("the refresh was stopped")

    # --- first ------------------------------------------------------------------------------

    def _build(self) -> None:
        definition = self.definition
        run = self._run(small=False)
        try:
            with spark_faults():
                known = self._result_types(run, definition.layout)
                frame = self._all_rows(run, known)
                kinds = {f["name"]: f["type"] for f in frame.schema.jsonValue()["fields"]}
            plain = list(frame.columns)
            if definition.layout is None:
                self._memory["plain"] = plain
                names = {name: name for name in plain}
            else:
                names = {c.column: c.name for c in definition.layout.columns}
            columns = {names[name]: _column_type(names[name], kind) for name, kind in kinds.items()}
            table = self._txn.create_table(self._table, columns, hidden=True)
            self._memory["types"] = {n: types.spark_type(kind) for n, kind in known.items()}
            self._memory["columns"] = self._used_columns()
            self._memory["moment"] = moment_text(definition.moments, self._moment)
            # Few groups are looked for later: where they are, row groups then tell. Without a
            # shuffle: that would compute the query twice.
            by = [
                types.quote(name)
                for name in lookup_columns(definition, self._planner.sizes)
                if isinstance(kinds.get(name), str)
            ]
            rows = frame.sortWithinPartitions(*by) if by else frame
            table.append(rows.toDF(*(names[name] for name in frame.columns)))
        finally:
            run.close()
        self._job.owns(self._table)
        self._show(plain)

    def _show(self, plain: list[str]) -> None:
        """Let readers see it, as a new view or in place of the one that it replaces."""
        reader = reader_of(self.definition, plain)
        _, stored = split_name(self._table)
        (relation,) = reader.find_all(exp.Table)
        relation.set("this", exp.to_identifier(stored, quoted=True))
        sql = reader.sql("duckdb")
        view = str(self._options["view"])
        self._take_the_place(self._options.get("replaces"))
        if self._txn.find_view(view) is None:
            self._txn.create_view(view, sql)
        else:
            self._txn.replace_view(view, sql)

    def _take_the_place(self, old: int | None) -> None:
        """Drop the view that this one replaces, and take over its name."""
        if old is None:
            return
        with self._runtime.database.read() as connection:
            job = joblog.record(connection, old)
        if job is not None and job.dropped_at is None:
            self._txn.act_for(old)
            if "types" in job.last.memory:
                self._txn.drop_table(job.spec.consumer["table"])

        def switch(commit: Commit) -> None:
            joblog.drop(commit.connection, old, self._moment)
            commit.connection.execute(
                sa.update(t.job).where(t.job.c.job_id == self._job.id).values(name=VIEW)
            )

        self._txn.on_commit(switch)

    def _all_rows(self, run: Run, known: Types) -> DataFrame:
        """The stored table's rows at the end of the range, in its columns' order."""
        layout = self.definition.layout
        if layout is None or self._is_plain:
            # As written: Spark knows best how to compute all of a query.
            rows = self._plain_query(run)
            return rows if layout is None else rows.toDF(*layout.names)
        b = self._planner.programs(small=False).builder()
        return run.frame(prepare(b.program(stored_delta.all_rows(b, layout, known))))

    def _plain_query(self, run: Run) -> DataFrame:
        """The query as written, at the end of the range."""
        relations = {}
        for key, given in self.definition.inputs.items():
            number = list(self._sources.inputs).index(given.name)
            leaf = Leaf(source=given.name, number=number, end=End.NEW).name
            if given.reader is not None:
                relations[key] = run.view_of(given.reader, leaf)
            else:
                relations[key] = run.view(leaf)
        tree = with_tables(self.definition.tree, lambda key: relations[key])
        with spark_faults():
            return run.session.sql(tree.sql("spark"))

    def _result_types(self, run: Run, layout: Layout | None) -> dict[str, pa.DataType]:
        """Spark's types of averages, which are sums and counts in the stored table."""
        if layout is None or layout.groups is None:
            return {}
        calls = [c for c in layout.calls if isinstance(c.source.call, exp.Avg)]
        if not calls:
            return {}
        b = self._planner.programs(small=False).builder()
        below = b.rows(layout.groups.input, End.NEW)
        items = [exp.alias_(c.source.call.copy(), c.source.name) for c in calls]
        query = exp.select(*items).from_(
            exp.Subquery(this=below, alias=exp.TableAlias(this=exp.to_identifier("q")))
        )
        return types.of_columns(run.frame(prepare(b.program(query))).schema)

    # --- again ------------------------------------------------------------------------------

    def _remember(self, strategy: Strategy, predicted: float, seconds: float, name: str) -> None:
        """Note how long a strategy was predicted to take, and took."""
        runs = self._memory.setdefault("runs", {})
        if strategy is Strategy.FULL:
            # What was slow once is tried again soon: it may have been the first of its kind.
            for other, (guess, took) in list(runs.items()):
                if other != name:
                    runs[other] = [guess, round((took + guess) / 2, 4)]
        # The mean with what was known: the machine may have been busy, or new to the query.
        guess, took = runs.get(name, (1, 1))
        seconds = math.sqrt(seconds * predicted * took / guess)
        runs[name] = [round(predicted, 4), round(seconds, 4)]

    def _apply(self, plan: RefreshPlan) -> None:
        if plan.strategy is Strategy.FULL:
            self._full()
            return
        planned, layout = self._planner.change(small=plan.small), self.definition.layout
        if planned is None or layout is None:
            return
        with ExitStack() as stack:
            run = self._running(stack, small=plan.small, alone=self._is_alone)
            if plan.strategy is Strategy.APPEND:
                self._append(run, layout, small=plan.small)
            elif plan.small:
                change = run.collect(planned)
                self._stored_table.change(
                    layout, change, lambda rows: self._again(stack, run, layout, rows)
                )
            else:
                frame = run.frame(planned)
                self._stored_table.change_frame(
                    layout, frame, lambda rows: self._again_frame(stack, layout, rows)
                )

    @property
    def _is_alone(self) -> bool:
        """Whether changes in memory are too many to hand to Spark."""
        return not self._planner.fits(self._runtime.settings.local_rows)

    def _running(self, stack: ExitStack, *, small: bool, alone: bool = False) -> Run:
        """A run that is closed with the stack."""
        run = self._run(small=small, alone=small and alone)
        stack.callback(run.close)
        stack.callback(lambda: self._job.counted.append(run.rows))
        return run

    def _append(self, run: Run, layout: Layout, *, small: bool) -> None:
        append = self._planner.programs(small=small).append()
        if small:
            self._stored_table.add(layout, run.collect(append))
        else:
            names = [column.name for column in layout.columns]
            self._stored_table.add_frame(run.frame(append), names)

    def _again(self, stack: ExitStack, first: Run, layout: Layout, groups: pa.Table) -> pa.Table:
        """The rows of the groups to recompute.

        In a run of their own: steps of two programs may have the same names.
        """
        run = self._running(stack, small=True, alone=self._is_alone)
        run.share(first)
        keys = stored_delta.again_keys(layout)
        named = groups.select(list(keys)).rename_columns([f"k{n}" for n in range(len(keys))])
        if keys:
            run.give(stored_delta.GROUPS_AGAIN, named)
        return run.collect(self._planner.programs(small=True).again(_types_of(named)))

    def _again_frame(self, stack: ExitStack, layout: Layout, groups: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        run = self._running(stack, small=False)
        keys = stored_delta.again_keys(layout)
        named = [F.col(key).alias(f"k{n}") for n, key in enumerate(keys)]
        run.give_frame(stored_delta.GROUPS_AGAIN, groups.select(*named))
        return run.frame(self._planner.programs(small=False).again({}))

    def _full(self) -> None:
        """Recompute all of it, and write the difference."""
        layout = self.definition.layout
        with ExitStack() as stack:
            run = self._running(stack, small=False)
            if layout is None:
                # Without a plan, nobody can tell which rows differ.
                everything = self._all_rows(run, {})
                self._stored_table.overwrite(everything, list(self._planner.stored_names))
                return
            everything = self._all_rows(run, self._planner.programs(small=False).types)
            bag = replace(layout, way=Way.BAG)
            if (few := self._if_few(everything)) is not None:
                # One action of Spark, and the difference is found here.
                small = self._running(stack, small=True)
                small.give(stored_delta.ALL, few)
                difference = self._planner.programs(small=True).difference(_types_of(few))
                self._stored_table.change(bag, small.collect(difference), _nothing)
            else:
                run.give_frame(stored_delta.ALL, everything)
                difference = self._planner.programs(small=False).difference({})
                self._stored_table.change_frame(bag, run.frame(difference), _nothing)

    def _if_few(self, rows: DataFrame) -> pa.Table | None:
        """All rows in memory, if they are few, as the stored ones are."""
        most = self._runtime.settings.local_rows
        if self._txn.scan(*split_name(self._table)).rows > most // 2:
            return None
        with spark_faults():
            few = rows.limit(most + 1).toArrow()
        kinds = [
            (self._planner.stored_names[c.name], c.type) for c in self._stored_table.info.columns
        ]
        return few.cast(pa.schema(kinds)) if few.num_rows <= most else None


def _types_of(rows: pa.Table) -> dict[str, pa.DataType]:
    return dict(zip(rows.column_names, rows.schema.types, strict=True))


def _nothing(*_: object) -> DataFrame:
    raise AssertionError("nothing changed there")


def _column_type(name: str, kind: Any) -> pa.DataType:
    if kind == "void":
        raise InvalidError(f"the column {name!r} has no type: write CAST(NULL AS …)")
    return types.from_spark(kind)
