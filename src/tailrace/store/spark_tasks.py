"""Runs a function in Spark's tasks, one for each input.

Inputs and results are pickled and go through the driver: both have to be small.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.store.spark_faults import spark_faults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Input = TypeVar("Input")
Result = TypeVar("Result")


def run_tasks(
    spark: SparkSession, run: Callable[[Input], Result], inputs: Sequence[Input]
) -> list[Result]:
    """What a function returns for each input, in no particular order."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    result, error = pickle.dumps(run(inputs[number])), None
                except InvalidError as wrong:
                    # As a result, not as a failure: Spark would try the task again, in vain.
                    result, error = None, pickle.dumps(wrong)
                arrays = [pa.array([result], pa.binary()), pa.array([error], pa.binary())]
                yield pa.RecordBatch.from_arrays(arrays, names=["result", "error"])

    numbers = spark.range(0, len(inputs), 1, len(inputs))
    with spark_faults():
        rows = numbers.mapInArrow(task, "result binary, error binary").toArrow().to_pylist()
    for row in rows:
        if row["error"] is not None:
            raise pickle.loads(row["error"])  # noqa: S301  (from our own workers)
    return [pickle.loads(row["result"]) for row in rows]  # noqa: S301
