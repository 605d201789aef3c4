"""Actions of Spark: Python functions in its tasks, and its faults told as ours.

What tasks return comes to the driver as pickled values. Inputs and results go through the driver:
both have to be small. What is wrong with a user's rows is raised at once: an InvalidError comes as
a result, because Spark would run a task that failed again, in vain.

Any other error that is raised in a worker comes to the driver as text inside of another error, and
so does an object that Spark's own reader could not read.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tailrace import errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_UNREADABLE = re.compile(
    # The latter at once, or with Connect not before the rows are asked for.
    r"FAILED_READ_FILE\S* Encountered error while reading file (\S+?)\.?\s"
    r"|PATH_NOT_FOUND\S* Path does not exist: (\S+?)\.?\s"
)
_OURS = re.compile(r"^tailrace\.errors\.(\w+Error): (.*)$", re.MULTILINE)


@contextmanager
def spark_faults() -> Iterator[None]:
    """Around an action of Spark: raise our errors where it failed by one of ours."""
    try:
        yield
    except Exception as error:
        ours = _translate(error)
        if ours is None:
            raise
        raise ours from error


def is_sparks(error: Exception) -> bool:
    """Whether Spark, or the way to it, has raised an error."""
    # By name, because a session may be classic or Connect, and either may be missing.
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _translate(error: Exception) -> errors.TailraceError | None:
    if not is_sparks(error):
        return None
    text = str(error)
    if found := _OURS.search(text):
        kind = getattr(errors, found[1], None)
        if isinstance(kind, type) and issubclass(kind, errors.TailraceError):
            return kind(found[2])
    if found := _UNREADABLE.search(text):
        return errors.CorruptError(f"the object {found[1] or found[2]} is missing or damaged")
    return None


Input = TypeVar("Input")
Result = TypeVar("Result")


def run_tasks(
    spark: SparkSession, run: Callable[[Input], Result], inputs: Sequence[Input]
) -> list[Result]:
    """What a function returns for each input, in no particular order."""

    def each_input(tables: Iterator[pa.Table]) -> Iterator[Result]:
        for table in tables:
            for number in table.column(0).to_pylist():
                yield run(inputs[number])

    return run_over_rows(spark.range(0, len(inputs), 1, len(inputs)), each_input)


def run_over_rows(
    rows: DataFrame, run: Callable[[Iterator[pa.Table]], Iterable[Result]]
) -> list[Result]:
    """What a function yields for the rows of each partition."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for result in run(pa.Table.from_batches([batch]) for batch in batches):
                yield _packed(result, None)
        except errors.InvalidError as error:
            yield _packed(None, error)

    with spark_faults():
        packed = rows.mapInArrow(task, "result binary").toArrow().column(0).to_pylist()
    results = []
    for one in packed:
        result, error = pickle.loads(one)  # noqa: S301  (from our own workers)
        if error is not None:
            raise error
        results.append(result)
    return results


def _packed(result: Any, error: errors.InvalidError | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps((result, error))])], names=["result"])
