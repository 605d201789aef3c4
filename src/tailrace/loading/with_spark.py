"""A load by Spark's workers, for input of any size.

Several Spark jobs at once read the parts; each that ends is a step of the progress. Without a
primary key, the workers write the table's own files. With one, they stage the rows, each with its
part and line; `spark_keys` compares keys, and the table's own write path sorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from tailrace.errors import UnavailableError
from tailrace.loading.parts import Part, first_lines, joined, tasks
from tailrace.loading.plan import PART_BYTES, LoadPlan, Outcome
from tailrace.loading.progress import ProgressCounter
from tailrace.loading.reading import first_line
from tailrace.loading.report import write_report
from tailrace.loading.rows import Misfit, PartStarts, Rejected
from tailrace.loading.spark_keys import write_keyed
from tailrace.loading.spark_task import LoadTask, TaskResult, misfits_in, misfits_of, staged
from tailrace.loading.stop_sign import StopSign
from tailrace.store.files import DataFile, Op
from tailrace.store.parquet_writer import FileWriter, new_object_name
from tailrace.store.reader.opened import open_parquet
from tailrace.store.runtime import Runtime
from tailrace.store.spark_tasks import run_tasks
from tailrace.store.write import Written

# Spark jobs that read the parts: each is a step of the progress that users see.
_WAVES = 16
_LEAST_TASKS = 2  # of a job


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
