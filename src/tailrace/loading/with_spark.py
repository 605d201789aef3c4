"""A load by Spark's workers: for input of any size.

The parts are read in a few Spark jobs at once, each of which tells how far it got when it ends.
Without a primary key the workers write the table's own files. With one they stage the rows, each
with its place in the input; `spark_keys` compares keys, and the table's own write path sorts.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.errors import UnavailableError
from tailrace.loading.job import PART_BYTES, LoadJob, Outcome, Teller
from tailrace.loading.parts import Part, first_lines, joined, tasks
from tailrace.loading.reading import first_line
from tailrace.loading.report import write_report
from tailrace.loading.rows import Misfit, Places, Rejected
from tailrace.loading.spark_keys import write_keyed
from tailrace.loading.stop_sign import StopSign
from tailrace.loading.tasks import LoadTask, TaskResult, misfits_in, misfits_of, staged
from tailrace.store.files import DataFile, Op
from tailrace.store.parquet import FileWriter, new_object_name
from tailrace.store.runtime import Runtime
from tailrace.store.spark_faults import spark_faults
from tailrace.store.write import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark jobs in which the parts are read: each is a step of the progress that users see.
_WAVES = 16
_LEAST_TASKS = 2  # of a job

Batches = Iterable[pa.RecordBatch]


def load_with_spark(job: LoadJob) -> Outcome:
    """Load all files."""
    temporary: list[str] = []  # objects that are not the table's
    try:
        writer = job.txn.writer(job.name)
        # A file that breaks lines inside quotes may have been cut there: then it is read whole.
        read = _read(job, writer, temporary, divide=True) or _read(
            job, writer, temporary, divide=False
        )
        assert read is not None
        return _write(job, writer, read, temporary)
    finally:
        with suppress(UnavailableError):  # then the sweep deletes them
            job.runtime.storage.delete(temporary)


@dataclass(frozen=True, kw_only=True)
class _Read:
    """The input, read and written to files."""

    files: tuple[DataFile, ...]
    places: Places
    rejected: int
    misfit_files: tuple[DataFile, ...]
    teller: Teller


def _read(job: LoadJob, writer: FileWriter, temporary: list[str], *, divide: bool) -> _Read | None:
    """Read all parts; None if one did not begin where the one before it ended."""
    parts = job.parts(divide=divide)
    teller = Teller(job, parts)
    keyed = bool(job.table.key)
    task = LoadTask(
        writer=replace(writer, table=staged(job.table)) if keyed else writer,
        misfit_writer=replace(writer, table=misfits_of(job.table)),
        on_error=job.options.on_error,
        with_places=keyed,
        stop=StopSign(
            storage=writer.storage, path=f"{writer.table.path}{new_object_name(writer.txn_id)}"
        ),
    )
    temporary.append(task.stop.path)
    results = _run(job.runtime, task, tasks(parts, PART_BYTES), teller)
    files = [file for result in results for file in result.files]
    misfit_files = [file for result in results for file in result.misfit_files]
    temporary += [file.path for file in (*files, *misfit_files)]
    if any(result.stopped for result in results):
        _refuse(job, parts, results)
        return None
    ends = {number: end for result in results for number, end in result.ends.items()}
    in_order = [ends[part.number] for part in parts]
    if not joined(parts, in_order):
        return None
    names = tuple(part.file.name for part in parts)
    return _Read(
        files=tuple(files),
        places=Places(files=names, first_lines=tuple(first_lines(parts, in_order))),
        rejected=sum(result.rejected for result in results),
        misfit_files=tuple(misfit_files),
        teller=teller,
    )


def _refuse(job: LoadJob, parts: Sequence[Part], results: Iterable[TaskResult]) -> None:
    """Raise for the rejected rows, unless one of them is in a part that was cut wrongly."""
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
            shown.append(misfit.placed(part.file.name, lines[misfit.part]))
    raise job.refusal(shown)


def _write(job: LoadJob, writer: FileWriter, read: _Read, temporary: list[str]) -> Outcome:
    read.teller.writing()
    misfit_files = list(read.misfit_files)
    if job.table.key:
        outcome, left_out = write_keyed(job, writer, read.files, read.places)
        temporary += [file.path for one in left_out for file in one.files]
        misfit_files += [file for one in left_out if one.rejected for file in one.files]
    else:
        outcome = Outcome(rows=sum(file.rows for file in read.files))
        paths = [file.path for file in read.files]
        job.txn.own_objects(paths)
        written = Written(files=read.files)
        job.txn.add_written(job.table.schema, job.table.name, written, Op.APPEND)
        temporary[:] = set(temporary).difference(paths)
    if job.report is not None:
        found = _misfits(job.runtime, misfit_files)
        write_report(job.report, (read.places.of(misfit) for misfit in found))
    return replace(outcome, rejected=outcome.rejected + read.rejected)


def _misfits(runtime: Runtime, files: Iterable[DataFile]) -> Iterator[Misfit]:
    """Rejected rows, a few at a time."""
    for file in files:
        with runtime.storage.open_read(file.path) as source:
            for batch in pq.ParquetFile(source).iter_batches():
                yield from misfits_in(pa.Table.from_batches([batch]))


def _run(
    runtime: Runtime, task: LoadTask, groups: list[list[Part]], teller: Teller
) -> list[TaskResult]:
    """The tasks' results, in the order of the input. If one stops, the others do so soon."""
    spark = runtime.spark()
    size = max(_LEAST_TASKS, -(-len(groups) // _WAVES))
    waves = [groups[at : at + size] for at in range(0, len(groups), size)]
    found: list[TaskResult] = []
    with ThreadPoolExecutor(max_workers=max(1, len(waves))) as pool:
        running = {pool.submit(_run_wave, spark, task, wave): wave for wave in waves}
        try:
            for done in as_completed(running):
                results = done.result()
                found += results
                teller.read(
                    [part for group in running[done] for part in group],
                    rows=sum(end.rows for result in results for end in result.ends.values()),
                    rejected=sum(result.rejected for result in results),
                )
        except BaseException:
            task.stop.put_up()
            raise
    return sorted(found, key=lambda result: min(result.ends, default=0))


def _run_wave(spark: SparkSession, task: LoadTask, wave: list[list[Part]]) -> list[TaskResult]:
    numbers = spark.range(0, len(wave), 1, len(wave))
    with spark_faults():
        found = numbers.mapInArrow(_work(task, wave), "result binary").toArrow()
    return [
        pickle.loads(result)  # noqa: S301  (from our own workers)
        for result in found.column(0).to_pylist()
    ]


def _work(task: LoadTask, wave: list[list[Part]]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps(task.run(wave[number]))
                yield pa.RecordBatch.from_arrays([pa.array([result])], names=["result"])

    return run
