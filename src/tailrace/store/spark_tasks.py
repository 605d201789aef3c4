"""Python functions in Spark's tasks: what they return comes to the driver as pickled values.

Inputs and results go through the driver: both have to be small. What is wrong with a user's rows is
raised at once: an InvalidError comes as a result, because Spark would run a task that failed again,
in vain.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.store.spark_faults import spark_faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
        except InvalidError as error:
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


def _packed(result: Any, error: InvalidError | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps((result, error))])], names=["result"])
