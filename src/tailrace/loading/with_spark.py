"""A load by Spark's workers, for input of any size.

Several Spark jobs at once read the parts; each that ends is a step of the progress. Without a
primary key, the workers write the table's own files. With one, they stage the rows, each with its
part and line; once it is settled which row of a key counts, the table's own write path sorts them.

Always true: staged rows are told apart by the part and line that they came from. Which of them are
left out is computed once and stored, however often the others are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.errors import InvalidError, UnavailableError
from tailrace.loading.options import OnDuplicate, OnError, OnExisting
from tailrace.loading.parts import Part, first_line, first_lines, joined, tasks
from tailrace.loading.plan import PART_BYTES, SHOWN, LoadPlan, Outcome, ProgressCounter
from tailrace.loading.rows import (
    Misfit,
    PartStarts,
    Rejected,
    key_misfit,
    write_report,
)
from tailrace.loading.spark_task import (
    LINE,
    PART,
    LoadTask,
    StopSign,
    TaskResult,
    misfit_rows,
    misfits_in,
    misfits_of,
    staged,
)
from tailrace.spark_sql import types
from tailrace.store import spark_scan
from tailrace.store.files import DataFile, Op
from tailrace.store.open_file import open_parquet
from tailrace.store.rows import plain_rows
from tailrace.store.runtime import Runtime
from tailrace.store.spark_actions import run_tasks, spark_faults
from tailrace.store.write import FileWriter, Written, new_object_name, write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# Spark jobs that read the parts: each is a step of the progress that users see.
_WAVES = 16
_LEAST_TASKS = 2  # of a job
_FIRST, _LAST = "key_first", "key_last"  # starts of rows

Batches = Iterable[pa.RecordBatch]


def load_with_spark(plan: LoadPlan) -> Outcome:
    """Load all files."""
    temporary: list[str] = []  # objects to delete in the end
    try:
        writer = plan.txn.writer(plan.name)
        # A file that breaks lines inside quotes may have been cut there: then it is read whole.
        read = _read(plan, writer, temporary, divide=True) or _read(
            plan, writer, temporary, divide=False
        )
        assert read is not None
        return _write(plan, writer, read, temporary)
    finally:
        with suppress(UnavailableError):  # then the sweep deletes them
            plan.runtime.storage.delete(temporary)


@dataclass(frozen=True, kw_only=True)
class _Read:
    """The input, read and written to files."""

    files: tuple[DataFile, ...]
    starts: PartStarts
    rejected: int
    misfit_files: tuple[DataFile, ...]


def _read(
    plan: LoadPlan, writer: FileWriter, temporary: list[str], *, divide: bool
) -> _Read | None:
    """Read all parts; None if one did not begin where the one before it ended."""
    parts = plan.parts(divide=divide)
    progress = plan.progress(parts)
    keyed = bool(plan.table.key)
    task = LoadTask(
        writer=replace(writer, table=staged(plan.table)) if keyed else writer,
        misfit_writer=replace(writer, table=misfits_of(plan.table)),
        on_error=plan.options.on_error,
        with_origin=keyed,
        stop=StopSign(
            storage=writer.storage, path=f"{writer.table.path}{new_object_name(writer.txn_id)}"
        ),
    )
    temporary.append(task.stop.path)
    results = _run(plan.runtime, task, tasks(parts, PART_BYTES), progress)
    files = [file for result in results for file in result.files]
    misfit_files = [file for result in results for file in result.misfit_files]
    temporary += [file.path for file in (*files, *misfit_files)]
    if any(result.stopped for result in results):
        _refuse(plan, parts, results)
        return None
    ends = {number: end for result in results for number, end in result.ends.items()}
    in_order = [ends[part.number] for part in parts]
    if not joined(parts, in_order):
        return None
    progress.writing()
    names = tuple(part.file.name for part in parts)
    return _Read(
        files=tuple(files),
        starts=PartStarts(files=names, first_lines=tuple(first_lines(parts, in_order))),
        rejected=sum(result.rejected for result in results),
        misfit_files=tuple(misfit_files),
    )


def _refuse(plan: LoadPlan, parts: Sequence[Part], results: Iterable[TaskResult]) -> None:
    """Raise for the rejected rows, unless one of them is in a part that was cut inside quotes."""
    shown: list[Rejected] = []
    for result in results:
        lines: dict[int, int] = {}
        for misfit in result.first:
            part = parts[misfit.part]
            if misfit.part not in lines:
                begin = result.ends[misfit.part].begin
                line = first_line(part, begin)
                if line is None:
                    return
                lines[misfit.part] = line
            shown.append(misfit.at(part.file.name, lines[misfit.part]))
    raise plan.refusal(shown)


def _write(plan: LoadPlan, writer: FileWriter, read: _Read, temporary: list[str]) -> Outcome:
    misfit_files = list(read.misfit_files)
    if plan.table.key:
        outcome, left_out = write_keyed(plan, writer, read.files, read.starts)
        temporary += [file.path for one in left_out for file in one.files]
        misfit_files += [file for one in left_out if one.rejected for file in one.files]
    else:
        outcome = Outcome(rows=sum(file.rows for file in read.files))
        paths = [file.path for file in read.files]
        plan.txn.own_objects(paths)
        written = Written(files=read.files)
        plan.txn.add_written(plan.table.schema, plan.table.name, written, Op.APPEND)
        temporary[:] = set(temporary).difference(paths)
    if plan.report is not None:
        misfits = _misfits(plan.runtime, misfit_files)
        write_report(plan.report, (read.starts.of(misfit) for misfit in misfits))
    return replace(outcome, rejected=outcome.rejected + read.rejected)


def _misfits(runtime: Runtime, files: Iterable[DataFile]) -> Iterator[Misfit]:
    """Rejected rows, a few at a time."""
    for file in files:
        with open_parquet(runtime.storage, file.path) as parquet:
            for batch in parquet.iter_batches():
                yield from misfits_in(pa.Table.from_batches([batch]))


def _run(
    runtime: Runtime, task: LoadTask, groups: list[list[Part]], progress: ProgressCounter
) -> list[TaskResult]:
    """The tasks' results, in the order of the input. When one task stops, the others soon do."""
    spark = runtime.spark()
    size = max(_LEAST_TASKS, -(-len(groups) // _WAVES))
    waves = [groups[at : at + size] for at in range(0, len(groups), size)]
    all_results: list[TaskResult] = []
    with ThreadPoolExecutor(max_workers=max(1, len(waves))) as pool:
        running = {pool.submit(run_tasks, spark, task.run, wave): wave for wave in waves}
        try:
            for done in as_completed(running):
                results = done.result()
                all_results += results
                progress.read(
                    [part for group in running[done] for part in group],
                    rows=sum(end.rows for result in results for end in result.ends.values()),
                    rejected=sum(result.rejected for result in results),
                )
        except BaseException:
            task.stop.put_up()
            raise
    return sorted(all_results, key=lambda result: min(result.ends, default=0))


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Rows that are not loaded because of their key, in files of rejected rows."""

    files: tuple[DataFile, ...] = ()
    rejected: bool = True  # else another row was preferred

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def write_keyed(
    plan: LoadPlan, writer: FileWriter, files: Sequence[DataFile], starts: PartStarts
) -> tuple[Outcome, list[LeftOut]]:
    """Write staged rows to the table; returns what was left out."""
    if not files:
        return Outcome(rows=0), []
    rows = _Keyed(plan=plan, writer=writer, starts=starts)
    frame = rows.load(files)
    repeated = existing = LeftOut()
    # If taken keys are an error, the write finds them; only then do we look for the rows.
    strict = plan.options.on_error is OnError.ABORT
    choice = plan.options.on_duplicate
    if choice is not OnDuplicate.REJECT or not strict:
        rejects = choice is OnDuplicate.REJECT
        repeated, frame = rows.leave_out(rows.repeated(frame), frame, rejected=rejects)
    wish = plan.options.on_existing
    if rows.has_old and (wish is OnExisting.KEEP or (wish is OnExisting.REJECT and not strict)):
        rejects = wish is OnExisting.REJECT
        existing, frame = rows.leave_out(rows.existing(frame), frame, rejected=rejects)
    rows.write(frame)
    outcome = Outcome(
        rows=sum(file.rows for file in files) - repeated.rows - existing.rows,
        rejected=sum(one.rows for one in (repeated, existing) if one.rejected),
        repeated=0 if repeated.rejected else repeated.rows,
        kept=0 if existing.rejected else existing.rows,
    )
    return outcome, [repeated, existing]


@dataclass(frozen=True, kw_only=True)
class _Keyed:
    plan: LoadPlan
    writer: FileWriter
    starts: PartStarts

    @property
    def _names(self) -> list[str]:
        """The columns, named by number: a real name may have dots in it."""
        return [f"c{number}" for number in range(len(self.plan.table.columns))]

    @property
    def _keys(self) -> list[str]:
        names = {c.id: n for c, n in zip(self.plan.table.columns, self._names, strict=True)}
        return [names[number] for number in self.plan.table.key]

    @property
    def has_old(self) -> bool:
        return bool(self.plan.txn.scan(self.plan.table.schema, self.plan.table.name).files)

    def load(self, files: Sequence[DataFile]) -> DataFrame:
        """Staged rows."""
        columns = staged(self.plan.table).columns
        frame = spark_scan.load(self.plan.runtime, files, columns)
        return frame.toDF(*self._names, PART, LINE)

    def repeated(self, frame: DataFrame) -> DataFrame:
        """The rows to leave out of those with the same key, with the place of the first."""
        from pyspark.sql import functions as F

        place = F.struct(PART, LINE)
        groups = (
            frame.groupBy(*self._keys)
            .agg(F.min(place).alias(_FIRST), F.max(place).alias(_LAST))
            .where(F.col(_FIRST) != F.col(_LAST))
        )
        chosen = _LAST if self.plan.options.on_duplicate is OnDuplicate.LAST else _FIRST
        repeated = frame.join(groups, self._keys).where(place != F.col(chosen))
        return repeated.select(*self._names, PART, LINE, _FIRST)

    def existing(self, frame: DataFrame) -> DataFrame:
        """The rows whose key the table has."""
        from pyspark.sql import functions as F

        table = self.plan.table
        scan = self.plan.txn.scan(table.schema, table.name)
        keys = [types.quote(column.name) for column in table.key_columns]
        old = spark_scan.to_df(self.plan.runtime, scan).select(*keys).toDF(*self._keys)
        known = frame.join(old, self._keys, "left_semi")
        return known.select(*self._names, PART, LINE, F.lit(None).alias(_FIRST))

    def leave_out(
        self, losers: DataFrame, frame: DataFrame, *, rejected: bool
    ) -> tuple[LeftOut, DataFrame]:
        """Store which rows are left out, with their text if it is reported; returns the others."""
        runtime, misfits = self.plan.runtime, misfits_of(self.plan.table)
        told = rejected and self.plan.options.on_error is OnError.REPORT
        rows = self._described(losers) if told else self._bare(losers)
        written = write_rows(runtime, misfits, rows, txn_id=self.writer.txn_id, op=Op.APPEND)
        if written.files:
            marked = spark_scan.load(runtime, written.files, misfits.columns[:2]).toDF(PART, LINE)
            frame = frame.join(marked, [PART, LINE], "left_anti")
        return LeftOut(files=written.files, rejected=rejected), frame

    def write(self, frame: DataFrame) -> None:
        """Write rows to the table."""
        plan = self.plan
        table = plan.txn.table(plan.name)
        rows = frame.select(*self._names).toDF(*(c.name for c in plan.table.columns))
        try:
            if plan.options.on_existing is OnExisting.REPLACE:
                table.upsert(rows)
            else:
                table.append(rows)
        except InvalidError as error:
            if plan.options.on_error is not OnError.ABORT:
                raise
            for find in (self.repeated, self.existing):
                with spark_faults():
                    few = self._described(find(frame).limit(SHOWN)).toArrow()
                if few.num_rows:
                    rejected = [self.starts.of(misfit) for misfit in misfits_in(few)]
                    raise plan.refusal(rejected) from error
            raise

    def _bare(self, losers: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        part, line, *others = (column.name for column in misfits_of(self.plan.table).columns)
        nothing = (F.lit(None).cast("string").alias(name) for name in others)
        return losers.select(F.col(PART).alias(part), F.col(LINE).alias(line), *nothing)

    def _described(self, losers: DataFrame) -> DataFrame:
        table, starts = self.plan.table, self.starts
        names = [column.name for column in table.columns]
        schema = misfits_of(table).arrow_schema

        def describe(batches: Batches) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                *columns, parts, lines, firsts = batch.columns
                rows = plain_rows(pa.table(columns, names=names))
                places = zip(*(c.to_pylist() for c in (parts, lines, firsts)), strict=True)
                misfits = []
                for row, (part, line, place) in zip(rows, places, strict=True):
                    first = starts.text(*place.values()) if place else None
                    misfits.append(key_misfit(table, row, part=part, line=line, first=first))
                yield from misfit_rows(misfits).to_batches()

        return losers.mapInArrow(describe, types.spark_schema(schema))
