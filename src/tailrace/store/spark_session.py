"""Where the Spark session comes from: given by the user, or started at the first call."""

from __future__ import annotations

import os
import sys
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkProvider:
    """Starts a local Spark at the first call, unless there is a session already."""

    def __init__(self, session: SparkSession | None = None) -> None:
        self.session = session  # None: not started yet
        self._lock = Lock()

    def __call__(self) -> SparkSession:
        with self._lock:
            if self.session is None:
                self.session = _start_spark()
            return self.session


def _start_spark() -> SparkSession:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # Workers must run the Python that has Tailrace and its libraries.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "SPARK_REMOTE" in os.environ or SparkConf().contains("spark.master"):
        return SparkSession.builder.getOrCreate()  # Connect or spark-submit has set it all up
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.appName("tailrace")
        .master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
        # Files are named, not listed: looking at a few hundred is faster than a job for it.
        .config("spark.sql.sources.parallelPartitionDiscovery.threshold", "2000")
        .getOrCreate()
    )
