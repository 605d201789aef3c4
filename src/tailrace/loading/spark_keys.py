"""Staged rows into a table with a primary key, after the keys that occur twice are settled.

Always true: rows are told apart by the part and the line that they came from. Which rows are left
out is computed once and written down, however often the rest is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.loading.job import SHOWN, LoadJob, Outcome
from tailrace.loading.options import OnDuplicate, OnError, OnExisting
from tailrace.loading.repeats import exists_in, key_misfit, stands_in
from tailrace.loading.rows import Places
from tailrace.loading.tasks import LINE, PART, misfit_rows, misfits_in, misfits_of, staged
from tailrace.spark_sql import types
from tailrace.store import spark_scan
from tailrace.store.files import DataFile, Op
from tailrace.store.parquet import FileWriter
from tailrace.store.rows import plain_rows
from tailrace.store.spark_faults import spark_faults
from tailrace.store.write import write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FIRST, _LAST = "key_first", "key_last"  # places of rows

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
    job: LoadJob, writer: FileWriter, files: Sequence[DataFile], places: Places
) -> tuple[Outcome, list[LeftOut]]:
    """Write staged rows to the table; says what was left out."""
    if not files:
        return Outcome(rows=0), []
    rows = _Keyed(job=job, writer=writer, places=places)
    frame = rows.load(files)
    repeated = existing = LeftOut()
    # What is an error anyway, the write itself finds; only then is it asked which rows they are.
    strict = job.options.on_error is OnError.ABORT
    choice = job.options.on_duplicate
    if choice is not OnDuplicate.REJECT or not strict:
        rejects = choice is OnDuplicate.REJECT
        repeated = rows.left_out(rows.repeated(frame), rejected=rejects)
        frame = rows.without(frame, repeated)
    wish = job.options.on_existing
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
    job: LoadJob
    writer: FileWriter
    places: Places

    @property
    def _names(self) -> list[str]:
        """The columns by numbers: a name may have dots in it."""
        return [f"c{number}" for number in range(len(self.job.table.columns))]

    @property
    def _keys(self) -> list[str]:
        names = {c.id: n for c, n in zip(self.job.table.columns, self._names, strict=True)}
        return [names[number] for number in self.job.table.key]

    @property
    def has_old(self) -> bool:
        return bool(self.job.txn.scan(self.job.table.schema, self.job.table.name).files)

    def load(self, files: Sequence[DataFile]) -> DataFrame:
        """Staged rows."""
        columns = staged(self.job.table).columns
        frame = spark_scan.load(self.job.runtime, files, columns)
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
        chosen = _LAST if self.job.options.on_duplicate is OnDuplicate.LAST else _FIRST
        repeated = frame.join(groups, self._keys).where(place != F.col(chosen))
        return repeated.select(*self._names, PART, LINE, _FIRST)

    def existing(self, frame: DataFrame) -> DataFrame:
        """The rows whose key the table has."""
        from pyspark.sql import functions as F

        table = self.job.table
        scan = self.job.txn.scan(table.schema, table.name)
        keys = [types.quote(column.name) for column in table.key_columns]
        old = spark_scan.to_df(self.job.runtime, scan).select(*keys).toDF(*self._keys)
        known = frame.join(old, self._keys, "left_semi")
        return known.select(*self._names, PART, LINE, F.lit(None).alias(_FIRST))

    def left_out(self, losers: DataFrame, *, rejected: bool) -> LeftOut:
        """Write down which rows go; with their text if it is to be reported."""
        told = rejected and self.job.options.on_error is OnError.REPORT
        frame = self._described(losers) if told else self._bare(losers)
        written = write_rows(
            self.job.runtime,
            misfits_of(self.job.table),
            frame,
            txn_id=self.writer.txn_id,
            op=Op.APPEND,
        )
        return LeftOut(files=written.files, rejected=rejected)

    def without(self, frame: DataFrame, gone: LeftOut) -> DataFrame:
        """The other rows."""
        if not gone.files:
            return frame
        places = misfits_of(self.job.table).columns[:2]
        marked = spark_scan.load(self.job.runtime, gone.files, places).toDF(PART, LINE)
        return frame.join(marked, [PART, LINE], "left_anti")

    def write(self, frame: DataFrame) -> None:
        """Write rows to the table."""
        table = self.job.txn.table(self.job.name)
        rows = frame.select(*self._names).toDF(*(c.name for c in self.job.table.columns))
        if self.job.options.on_existing is OnExisting.REPLACE:
            self._try(lambda: table.upsert(rows), frame)
        else:
            self._try(lambda: table.append(rows), frame)

    def _try(self, write: Callable[[], object], frame: DataFrame) -> None:
        try:
            write()
        except InvalidError as error:
            if self.job.options.on_error is not OnError.ABORT:
                raise
            for find in (self.repeated, self.existing):
                with spark_faults():
                    few = self._described(find(frame).limit(SHOWN)).toArrow()
                if few.num_rows:
                    found = [self.places.of(misfit) for misfit in misfits_in(few)]
                    raise self.job.refusal(found) from error
            raise

    def _bare(self, losers: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        part, line, *others = (column.name for column in misfits_of(self.job.table).columns)
        nothing = (F.lit(None).cast("string").alias(name) for name in others)
        return losers.select(F.col(PART).alias(part), F.col(LINE).alias(line), *nothing)

    def _described(self, losers: DataFrame) -> DataFrame:
        table, places = self.job.table, self.places
        names = [column.name for column in table.columns]
        schema = misfits_of(table).arrow_schema

        def describe(batches: Batches) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                *columns, part, line, first = batch.columns
                misfits = []
                for number, row in enumerate(plain_rows(pa.table(columns, names=names))):
                    place = first[number].as_py()
                    why = stands_in(places, *place.values()) if place else exists_in(table)
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
