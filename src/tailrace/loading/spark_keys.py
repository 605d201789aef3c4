"""Writes staged rows to a table with a primary key, once it is settled which row of a key counts.

Always true: rows are told apart by the part and line that they came from. Which rows are left out
is computed once and stored, however often the others are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.loading.options import OnDuplicate, OnError, OnExisting
from tailrace.loading.plan import SHOWN, LoadPlan, Outcome
from tailrace.loading.repeats import exists_in, key_misfit, stands_in
from tailrace.loading.rows import PartStarts
from tailrace.loading.spark_task import LINE, PART, misfit_rows, misfits_in, misfits_of, staged
from tailrace.spark_sql import types
from tailrace.store import spark_scan
from tailrace.store.files import DataFile, Op
from tailrace.store.parquet_writer import FileWriter
from tailrace.store.rows import plain_rows
from tailrace.store.spark_faults import spark_faults
from tailrace.store.write import write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FIRST, _LAST = "key_first", "key_last"  # starts of rows

Batches = Iterable[pa.RecordBatch]


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
        repeated = rows.left_out(rows.repeated(frame), rejected=rejects)
        frame = rows.without(frame, repeated)
    wish = plan.options.on_existing
    if rows.has_old and (wish is OnExisting.KEEP or (wish is OnExisting.REJECT and not strict)):
        existing = rows.left_out(rows.existing(frame), rejected=wish is OnExisting.REJECT)
        frame = rows.without(frame, existing)
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

    def left_out(self, losers: DataFrame, *, rejected: bool) -> LeftOut:
        """Store which rows are left out; with their text if they are to be reported."""
        told = rejected and self.plan.options.on_error is OnError.REPORT
        frame = self._described(losers) if told else self._bare(losers)
        written = write_rows(
            self.plan.runtime,
            misfits_of(self.plan.table),
            frame,
            txn_id=self.writer.txn_id,
            op=Op.APPEND,
        )
        return LeftOut(files=written.files, rejected=rejected)

    def without(self, frame: DataFrame, gone: LeftOut) -> DataFrame:
        """The other rows."""
        if not gone.files:
            return frame
        columns = misfits_of(self.plan.table).columns[:2]
        marked = spark_scan.load(self.plan.runtime, gone.files, columns).toDF(PART, LINE)
        return frame.join(marked, [PART, LINE], "left_anti")

    def write(self, frame: DataFrame) -> None:
        """Write rows to the table."""
        table = self.plan.txn.table(self.plan.name)
        rows = frame.select(*self._names).toDF(*(c.name for c in self.plan.table.columns))
        if self.plan.options.on_existing is OnExisting.REPLACE:
            self._try(lambda: table.upsert(rows), frame)
        else:
            self._try(lambda: table.append(rows), frame)

    def _try(self, write: Callable[[], object], frame: DataFrame) -> None:
        try:
            write()
        except InvalidError as error:
            if self.plan.options.on_error is not OnError.ABORT:
                raise
            for find in (self.repeated, self.existing):
                with spark_faults():
                    few = self._described(find(frame).limit(SHOWN)).toArrow()
                if few.num_rows:
                    rejected = [self.starts.of(misfit) for misfit in misfits_in(few)]
                    raise self.plan.refusal(rejected) from error
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
                *columns, part, line, first = batch.columns
                misfits = []
                for number, row in enumerate(plain_rows(pa.table(columns, names=names))):
                    place = first[number].as_py()
                    why = stands_in(starts, *place.values()) if place else exists_in(table)
                    misfits.append(
                        key_misfit(
                            table,
                            row,
                            part=part[number].as_py(),
                            line=line[number].as_py(),
                            why=why,
                        )
                    )
                yield from misfit_rows(misfits).to_batches()

        return losers.mapInArrow(describe, types.spark_schema(schema))
