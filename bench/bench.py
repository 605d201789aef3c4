"""What the measurements share: a directory, a scale, one Spark session, one PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import tailrace
from bench.choice import Choice
from tests.support.postgres import PostgresServer, run_postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Bench:
    """One run. Spark and PostgreSQL start when first asked for, and stop with the run."""

    def __init__(self, home: Path, *, scale: float, choice: Choice, stack: ExitStack) -> None:
        self._home, self._scale, self._stack = home, scale, stack
        self.choice = choice

    def size(self, full: int) -> int:
        """A number of rows or tables, at this run's scale."""
        return max(1, round(full * self._scale))

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """A place that is empty at first, and gone after the block."""
        place = self._home / uuid.uuid4().hex
        place.mkdir()
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    @contextmanager
    def lake(self) -> Iterator[tuple[tailrace.Lake, Path]]:
        """A new lake in a directory, with the run's Spark session, and that directory."""
        with self.directory() as place, tailrace.connect(place, spark=self.spark) as lake:
            yield lake, place

    @cached_property
    def spark(self) -> SparkSession:
        # The workers have to be this interpreter, and everything stays on the loopback interface.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        from pyspark.sql import SparkSession

        session = (
            SparkSession.builder.master("local[2]")
            .appName("tailrace-bench")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "4g")
            .config("spark.local.dir", str(self._home / "spark"))
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(self._home / "warehouse"))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        self._stack.callback(session.stop)
        return session

    @cached_property
    def postgres(self) -> PostgresServer:
        return self._stack.enter_context(run_postgres())
