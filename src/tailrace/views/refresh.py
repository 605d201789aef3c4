"""One refresh of one view: from its watermark to a snapshot, in a transaction.

Always true: afterwards the stored table is the definition's result with every source read at that
snapshot; other views it reads are read as they are at the same label. Nothing is visible before
the iteration commits.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from sqlglot import exp

from tailrace.catalog import tables as t
from tailrace.errors import InvalidError
from tailrace.propagation import joblog, versions
from tailrace.propagation.changes import Changes
from tailrace.propagation.consumer import JobContext
from tailrace.propagation.job import Kind
from tailrace.propagation.jobs import VIEW
from tailrace.store import changes as feed
from tailrace.store import lookup, types
from tailrace.store.difference import difference
from tailrace.store.scan import LiveFile, Scan
from tailrace.store.schema import (
    CHANGE,
    OWN_PREFIX,
    TableInfo,
    fold,
    is_hidden,
    quoted_name,
    split_name,
)
from tailrace.store.spark_faults import spark_faults
from tailrace.store.transaction import Transaction
from tailrace.views import sink
from tailrace.views.choose import Choice, Facts, Strategy, choose, plain_cost
from tailrace.views.definition import (
    Definition,
    Find,
    Input,
    ViewInput,
    define,
    moment_text,
    reader_of,
    reader_sql,
    table_input,
    with_tables,
)
from tailrace.views.layout import Layout, Way
from tailrace.views.program import WEIGHT, Builder, State
from tailrace.views.run import Run, SourceData, StoredLimit, with_weights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# Changed rows up to which a plan is tiny.
_TINY_ROWS = 50_000


@dataclass(kw_only=True)
class _Delta:
    """What is known of a source's change before it is read."""

    rows: int
    small: bool
    inserts_only: bool
    local: Any  # a function that reads it into memory: `_change`, then the columns
    frame: Any  # a function that gives it as a DataFrame: `_w`, then the columns


class Refresh:
    """See the module."""

    def __init__(self, changes: Changes, txn: Transaction, job: JobContext) -> None:
        self._changes, self._txn, self._job = changes, txn, job
        self._runtime = txn.runtime
        self._options, self._memory = job.options, job.memory
        self._moment = self._runtime.clock.now()
        self._table = str(job.options["table"])
        # A label goes with the rows of a view; None where there is no earlier version.
        self._since = job.since if changes.kind is Kind.TAIL else None

    def run(self) -> str:
        """Bring the stored table to the job's snapshot; returns the strategy."""
        if "types" not in self._memory:
            started = time.monotonic()
            self._build()
            self._remember(Strategy.FULL, self._facts({}, moved=False), time.monotonic() - started)
            return Strategy.BUILD
        self._check_sources()
        moved = self._memory.get("moment", "") != moment_text(self.definition.moments, self._moment)
        changed = (
            {name: d for name, d in self._deltas.items() if d.rows}
            if self._since is not None
            else {}
        )
        if self._since is not None and not changed and not moved:
            return Strategy.NOTHING
        facts = self._facts(changed, moved=moved)
        choice = choose(self.definition, facts, str(self._options.get("policy", "auto")))
        started = time.monotonic()
        self._apply(choice, changed)
        self._remember(choice.strategy, facts, time.monotonic() - started)
        self._memory["moment"] = moment_text(self.definition.moments, self._moment)
        return choice.strategy

    # --- what it is about -------------------------------------------------------------------

    @cached_property
    def definition(self) -> Definition:
        return define(self._options["query"], self._find, self._moment)

    def _find(self, schema: str, name: str) -> Input:
        return self._finder(self._options)(schema, name)

    def _finder(self, options: Mapping[str, Any]) -> Find:
        """How a view's query finds its tables: as they are at the snapshot, and in here."""

        def find(schema: str, name: str) -> Input:
            upstream = options.get("views", {}).get(fold(quoted_name(schema, name)))
            with self._runtime.database.read() as connection:
                if upstream is not None:
                    row = joblog.row(connection, upstream)
                    own = json.loads(row.spec)["consumer"]
                else:
                    found = lookup.find_table(
                        connection, schema, name, self._job.to, self._runtime.tenant
                    )
            if upstream is not None:
                table = self._txn.info(own["table"])
                made = define(own["query"], self._finder(own), self._moment)
                reader = reader_of(made, [c.name for c in table.columns])
                return table_input(table, ViewInput(job=upstream, reader=reader, definition=made))
            if found is None:
                raise InvalidError(f"the view reads {schema}.{name}, which is not there any more")
            return table_input(found)

        return find

    def _check_sources(self) -> None:
        """The columns that the query uses have to be those that it was built on."""
        for table, columns in self._memory["columns"].items():
            schema, plain = split_name(table)
            with self._runtime.database.read() as connection:
                at = self._txn.base if is_hidden(plain) else self._job.to
                info = lookup.find_table(connection, schema, plain, at, self._runtime.tenant)
            now = {} if info is None else {c.name: c for c in info.columns}
            for name, was in columns.items():
                found = now.get(name)
                if found is None or [found.id, types.spark_type(found.type)] != was:
                    what = "is gone" if found is None else "is another one now"
                    raise InvalidError(
                        f"the view is invalid: the column {name!r} of {table} {what}; "
                        "create the view again with replace=True"
                    )

    def _used_columns(self) -> dict[str, dict[str, list[Any]]]:
        used = self.definition.fields
        found: dict[str, dict[str, list[Any]]] = {}
        for given in self.definition.inputs.values():
            assert given.table is not None
            columns = {c.name: c for c in given.table.columns}
            found[given.name] = {
                name: [columns[name].id, types.spark_type(columns[name].type)]
                for name in used.get(given.name, [])
            }
        return found

    # --- sources ----------------------------------------------------------------------------

    def _scan(self, table: TableInfo, at: int) -> Scan:
        with self._runtime.database.read_at_once() as connection:
            lookup.check_snapshot(connection, at)
            files = lookup.data_files(connection, table, at)
        return Scan(table=table, at=at, files=tuple(LiveFile(file=file) for file in files))

    @cached_property
    def _inputs(self) -> dict[str, Input]:
        """By the stored table's name."""
        return {given.name: given for given in self.definition.inputs.values()}

    def _narrowed(self, name: str) -> TableInfo:
        table = self._inputs[name].table
        assert table is not None
        return table.narrowed(self.definition.fields[name])

    @cached_property
    def _ends(self) -> dict[tuple[str, State], Scan]:
        return {}

    def _end(self, name: str, state: State) -> Scan:
        """A source at one end of the range."""
        if (name, state) not in self._ends:
            given, table = self._inputs[name], self._narrowed(name)
            if given.view is None:
                at = self._job.to if state is State.NEW else self._since
                assert at is not None
                made = self._scan(table, at)
            elif state is State.NEW and self._txn.acts_for(given.view.job):
                # Refreshed by this very transaction.
                made = replace(self._txn.scan(*split_name(name)), table=table)
            else:
                label = self._job.to if state is State.NEW else self._since
                assert label is not None
                made = self._scan(table, self._version(table, label))
            self._ends[name, state] = made
        return self._ends[name, state]

    def _version(self, table: TableInfo, label: int) -> int:
        """The commit that made another view what it is at a label."""
        with self._runtime.database.read() as connection:
            found = versions.version_at(connection, table.id, label)
        if found is None:
            raise InvalidError(f"{table.full_name} has no version for snapshot {label}")
        return found

    @cached_property
    def _deltas(self) -> dict[str, _Delta]:
        found = {}
        for name, given in self._inputs.items():
            found[name] = self._base_delta(name) if given.view is None else self._view_delta(name)
        return found

    def _base_delta(self, name: str) -> _Delta:
        source = self._changes[name]
        columns = [c.name for c in self._narrowed(name).columns]

        def frame() -> DataFrame:
            inserts = source.inserts.select(*map(types.quote, columns)).selectExpr(
                "*", f"1 AS {WEIGHT}"
            )
            deletes = source.deletes.select(*map(types.quote, columns)).selectExpr(
                "*", f"-1 AS {WEIGHT}"
            )
            return inserts.unionAll(deletes)

        return _Delta(
            rows=source.rows,
            small=source.is_small,
            inserts_only=source.only_inserts,
            local=lambda: with_weights(source.table(), columns),
            frame=frame,
        )

    def _view_delta(self, name: str) -> _Delta:
        from tailrace.store import spark_changes

        found = difference(self._runtime, self._end(name, State.OLD), self._end(name, State.NEW))
        columns = [c.name for c in self._narrowed(name).columns]

        def frame() -> DataFrame:
            rows = spark_changes.to_df(self._runtime, found)
            weight = f"CASE WHEN {CHANGE} = 'insert' THEN 1 ELSE -1 END AS {WEIGHT}"
            return rows.selectExpr(*map(types.quote, columns), weight)

        return _Delta(
            rows=found.rows,
            small=feed.is_small(self._runtime, found),
            inserts_only=not found.some and all(p.change == feed.INSERT for p in found.whole),
            local=lambda: with_weights(feed.to_arrow(self._runtime, found), columns),
            frame=frame,
        )

    # --- programs ---------------------------------------------------------------------------

    def _builder(self, changed: Mapping[str, _Delta], *, small: bool) -> Builder:
        keys = {
            name: [c.name for c in given.table.key_columns]
            for name, given in self._inputs.items()
            if given.table is not None and given.table.key
        }
        return Builder(list(self._inputs), list(changed), keys=keys, sideways=small)

    def _run(self, changed: Mapping[str, _Delta], *, small: bool) -> Run:
        sources = {}
        for number, name in enumerate(self._inputs):
            delta = changed.get(name)
            sources[name] = SourceData(
                name=name,
                number=number,
                new=lambda name=name: self._end(name, State.NEW),  # type: ignore[misc]
                old=lambda name=name: self._end(name, State.OLD),  # type: ignore[misc]
                local_delta=delta.local if delta is not None and small else None,
                frame_delta=delta.frame if delta is not None else _nothing,
            )
        stored = None
        if "types" in self._memory:
            stored = lambda: self._txn.scan(*split_name(self._table))  # noqa: E731
        return Run(
            self._runtime,
            sources,
            stored=stored,
            names=self._stored_names,
            small=small,
            tiny=sum(delta.rows for delta in changed.values()) <= _TINY_ROWS,
            check=self._check_canceled,
        )

    def _check_canceled(self) -> None:
        if self._job.is_canceled():
            raise InvalidError("the refresh was stopped")

    @cached_property
    def _stored_names(self) -> dict[str, str]:
        """The stored table's columns, and what programs call them."""
        layout = self.definition.layout
        if layout is not None:
            return {column.name: column.column for column in layout.columns}
        return {name: f"c{n}" for n, name in enumerate(self._memory.get("plain", []))}

    # --- first ------------------------------------------------------------------------------

    def _build(self) -> None:
        made = self.definition
        run = self._run({}, small=False)
        try:
            with spark_faults():
                known = self._result_types(run, made.layout)
                frame = self._all_rows(run, known)
                kinds = {f["name"]: f["type"] for f in frame.schema.jsonValue()["fields"]}
            plain = list(frame.columns)
            if made.layout is None:
                self._memory["plain"] = plain
                names = {name: name for name in plain}
            else:
                names = {c.column: c.name for c in made.layout.columns}
            columns = {names[name]: _column_type(names[name], kind) for name, kind in kinds.items()}
            table = self._txn.create_table(self._table, columns, hidden=True)
            self._memory["types"] = known | {
                name: types.spark_type(columns[names[name]])
                for name in kinds
                if names[name].startswith(OWN_PREFIX)
            }
            self._memory["columns"] = self._used_columns()
            self._memory["moment"] = moment_text(made.moments, self._moment)
            table.append(frame.toDF(*(names[name] for name in frame.columns)))
        finally:
            run.close()
        self._job.owns(self._table)
        self._show(plain)

    def _show(self, plain: list[str]) -> None:
        """Let readers see it: a new view, or in place of the one that it was built beside."""
        reader = reader_of(self.definition, plain)
        _, stored = split_name(self._table)
        sql = reader_sql(reader, stored, "duckdb")
        view = str(self._options["view"])
        self._take_the_place(self._options.get("replaces"))
        if self._txn.find_view(view) is None:
            self._txn.create_view(view, sql)
        else:
            self._txn.replace_view(view, sql)

    def _take_the_place(self, old: int | None) -> None:
        """Drop the view that this one was built beside, and take over its name."""
        if old is None:
            return
        with self._runtime.database.read() as connection:
            row = joblog.row(connection, old)
        if row is not None and row.dropped_at is None:
            self._txn.act_for(old)
            stored = json.loads(row.spec)["consumer"]["table"]
            if "types" in json.loads(row.status).get("memory", {}):
                self._txn.drop_table(stored)

        def switch(connection: sa.Connection, _snapshot: int) -> None:
            joblog.drop(connection, old, self._moment)
            connection.execute(
                sa.update(t.job).where(t.job.c.job_id == self._job.id).values(name=VIEW)
            )

        self._txn.in_commit(switch)

    def _all_rows(self, run: Run, known: Mapping[str, str]) -> DataFrame:
        made = self.definition
        if made.layout is None:
            return self._plain_query(run)
        b = self._builder({}, small=False)
        return run.frame(b.program(sink.all_rows(b, made.layout, known)))

    def _plain_query(self, run: Run) -> DataFrame:
        """The query as it stands, for what the rules do not cover."""
        return plain_query(run, self.definition, list(self._inputs))

    def _result_types(self, run: Run, layout: Layout | None) -> dict[str, str]:
        """Spark's types of averages, which are sums and counts in the stored table."""
        if layout is None or layout.groups is None:
            return {}
        calls = [c for c in layout.calls if isinstance(c.source.call, exp.Avg)]
        if not calls:
            return {}
        b = self._builder({}, small=False)
        below = b.rows(layout.groups.input, State.NEW)
        items = [exp.alias_(c.source.call.copy(), c.source.name) for c in calls]
        query = exp.select(*items).from_(
            exp.Subquery(this=below, alias=exp.TableAlias(this=exp.to_identifier("q")))
        )
        fields = run.frame(b.program(query)).schema.jsonValue()["fields"]
        return {f["name"]: types.spark_type(types.from_spark(f["type"])) for f in fields}

    # --- again ------------------------------------------------------------------------------

    def _facts(self, changed: Mapping[str, _Delta], *, moved: bool) -> Facts:
        return Facts(
            sizes={name: self._end(name, State.NEW).rows for name in self._inputs},
            changes={name: delta.rows for name, delta in changed.items()},
            inserts_only=all(delta.inserts_only for delta in changed.values()),
            history=self._memory.get("runs", {}),
            rebuild=self._since is None,
            moved=moved,
        )

    def _remember(self, strategy: Strategy, facts: Facts, seconds: float) -> None:
        """What the strategy was predicted to take, and what it took."""
        runs = self._memory.setdefault("runs", {})
        if strategy is Strategy.FULL:
            # What was slow once is tried again some day.
            for other, (said, took) in list(runs.items()):
                runs[other] = [said, round(took - 0.1 * (took - said), 4)]
        said = plain_cost(self.definition, facts, strategy)
        before = runs.get(str(strategy))
        if before is not None:  # half of what was known: one run may have met a busy machine
            seconds = math.sqrt(seconds * said * before[1] / before[0])
        runs[str(strategy)] = [round(said, 4), round(seconds, 4)]

    def _apply(self, choice: Choice, changed: Mapping[str, _Delta]) -> None:
        layout = self.definition.layout
        small = choice.strategy is not Strategy.FULL and all(d.small for d in changed.values())
        run = self._run(changed, small=small)
        known = self._memory["types"]
        b = self._builder(changed, small=small)
        try:
            if choice.strategy is Strategy.FULL:
                self._full(run, b)
                return
            assert layout is not None
            if choice.strategy is Strategy.APPEND:
                query = sink.appended(b, layout)
                assert query is not None
                self._append(run, b, query, layout, small=small)
                return
            made = sink.change(b, layout, known)
            if made is None:
                return
            limit = sink.stored_limit(b, layout)
            program = b.program(made, [limit[1]] if limit else [])
            own = {column.column: column.name for column in layout.columns}
            stored_limit = StoredLimit(
                keys=None if limit is None else (own[limit[0]], limit[1], "k0"),
                origins=tuple((own[c], source) for c, source in sink.stored_origins(layout)),
            )
            if small:
                self._bring_in(run, layout, run.collect(program, stored_limit))
            else:
                self._bring_in_frame(run, b, layout, run.frame(program, stored_limit))
        finally:
            self._job.counted.append(run.rows)
            run.close()

    def _append(
        self, run: Run, b: Builder, query: exp.Query, layout: Layout, *, small: bool
    ) -> None:
        names = [column.name for column in layout.columns]
        table = self._txn.table(self._table)
        if small:
            rows = run.collect(b.program(query)).rename_columns(names)
            if rows.num_rows:
                table.append(self._fit(rows))
        else:
            table.append(run.frame(b.program(query)).toDF(*names))

    def _bring_in(self, run: Run, layout: Layout, found: pa.Table) -> None:
        """Apply a change that is in memory."""
        again = found.filter(found.column(sink.AGAIN))
        places = found.filter(pc.is_valid(found.column(sink.FILE)))
        if places.num_rows:
            self._remove(places)
        fresh = found.filter(pc.invert(found.column(sink.AGAIN)))
        count = fresh.column(sink.COUNT).to_numpy().astype(np.int64)
        if count.sum() == fresh.num_rows and (count == 1).all():
            rows = fresh
        else:
            rows = fresh.take(pa.array(np.repeat(np.arange(fresh.num_rows), count)))
        rows = rows.select(list(layout.names))
        if again.num_rows:
            rows = pa.concat_tables([rows, self._again(run, layout, again).cast(rows.schema)])
        if rows.num_rows:
            names = [column.name for column in layout.columns]
            self._txn.table(self._table).append(self._fit(rows.rename_columns(names)))

    def _again(self, run: Run, layout: Layout, groups: pa.Table) -> pa.Table:
        """The rows of groups whose least or greatest value may have gone."""
        keys = sink.again_keys(layout)
        names = [f"k{n}" for n in range(len(keys))]
        if keys:
            run.give(sink.GROUPS_AGAIN, groups.select(list(keys)).rename_columns(names))
        b = self._builder({name: d for name, d in self._deltas.items() if d.rows}, small=True)
        return run.collect(b.program(sink.again(b, layout, self._memory["types"])))

    def _fit(self, rows: pa.Table) -> pa.Table:
        """With the stored table's own types: Spark may count in a wider one."""
        table = self._txn.info(self._table)
        return rows.cast(pa.schema([(n, table.column(n).type) for n in rows.column_names]))

    def _remove(self, places: pa.Table) -> None:
        files = places.column(sink.FILE).to_numpy()
        positions = places.column(sink.POS).to_numpy()
        found = {int(key): np.unique(positions[files == key]) for key in np.unique(files)}
        self._txn.remove(self._table, found)

    def _bring_in_frame(self, run: Run, b: Builder, layout: Layout, found: DataFrame) -> None:
        """Apply a change that only Spark can hold."""
        from pyspark.sql import functions as F

        from tailrace.store.keys import collect_places
        from tailrace.store.schema import FILE, POS

        kept = found.persist()
        try:
            scan = self._txn.scan(*split_name(self._table))
            gone = kept.where(F.col(sink.FILE).isNotNull()).select(
                F.col(sink.FILE).alias(FILE), F.col(sink.POS).alias(POS)
            )
            places = collect_places(gone, scan.files)
            names = [column.name for column in layout.columns]
            rows = kept.where(~F.col(sink.AGAIN) & (F.col(sink.COUNT) > 0))
            if layout.way is Way.BAG:
                rows = rows.withColumn(
                    "tailrace_n", F.explode(F.expr(f"array_repeat(1, cast({sink.COUNT} as int))"))
                )
            rows = rows.select(*layout.names)
            if layout.way is Way.MERGE and any(call.extreme for call in layout.calls):
                keys = sink.again_keys(layout)
                again = kept.where(F.col(sink.AGAIN)).select(
                    *(F.col(key).alias(f"k{n}") for n, key in enumerate(keys))
                )
                with spark_faults():
                    any_again = not again.isEmpty()
                if any_again:
                    run.give_frame(sink.GROUPS_AGAIN, again)
                    more = sink.again(b, layout, self._memory["types"])
                    rows = rows.unionAll(run.frame(b.program(more)))
            rows = self._fit_frame(rows.toDF(*names))
            if places:
                self._txn.remove(self._table, places)
            self._txn.table(self._table).append(rows)
        finally:
            kept.unpersist()

    def _fit_frame(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        table = self._txn.info(self._table)
        return rows.select(
            *(
                F.col(types.quote(c.name)).cast(types.spark_type(c.type)).alias(c.name)
                for c in table.columns
            )
        )

    def _full(self, run: Run, b: Builder) -> None:
        """Compute all of it, and write what is different."""
        layout = self.definition.layout
        if layout is None:
            self._overwrite(run)
            return
        kinds = [c.type for c in self._txn.info(self._table).columns]
        if any(_has_map(kind) for kind in kinds):
            self._overwrite(run)
            return
        program = b.program(sink.full(b, layout, self._memory["types"]))
        bag = replace(layout, way=Way.BAG)
        self._bring_in_frame(run, b, bag, run.frame(program))

    def _overwrite(self, run: Run) -> None:
        """Without a plan or an equality there is no telling what is different."""
        rows = self._all_rows(run, self._memory["types"])
        names = list(self._stored_names)
        table = self._txn.table(self._table)
        rows = self._fit_frame(rows.toDF(*names))
        scan = self._txn.scan(*split_name(self._table))
        places = {
            live.file.key: np.setdiff1d(
                np.arange(live.file.rows, dtype=np.int64), live.dead(self._runtime, scan.at)
            )
            for live in scan.files
        }
        if any(len(found) for found in places.values()):
            self._txn.remove(self._table, places)
        table.append(rows)


def plain_query(run: Run, made: Definition, names: list[str]) -> DataFrame:
    """A view's query as Spark itself reads it, at the end of the range."""
    relations = {}
    for key, given in made.inputs.items():
        leaf = f"new_{names.index(given.name)}"
        if given.view is not None:
            relations[key] = run.named(f"v_{leaf}", given.view.reader, leaf)
        else:
            relations[key] = run.name(leaf)
    tree = with_tables(made.tree, lambda key: relations[key])
    with spark_faults():
        return run.session.sql(tree.sql("spark"))


def _nothing() -> DataFrame:
    raise AssertionError("a source without changes has no delta")


def _column_type(name: str, kind: Any) -> pa.DataType:
    if kind == "void":
        raise InvalidError(f"the column {name!r} has no type: write CAST(NULL AS …)")
    return types.from_spark(kind)


def _has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_has_map(c.type) for c in types.children_of(kind))
