"""One lake for all tests of a module: nothing that they do may change it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import tailrace
from tests.support.lakes import LakeArgs
from tests.support.refused import COLUMNS, ROW, everything

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def args(tmp_path_factory: pytest.TempPathFactory) -> LakeArgs:
    return LakeArgs(catalog="sqlite", url=str(tmp_path_factory.mktemp("bad")))


@pytest.fixture(scope="module")
def lake(args: LakeArgs, spark: SparkSession) -> Iterator[tailrace.Lake]:
    """A lake with `t`, which has a key and one row, and `plain`, which has neither."""
    with args.connect(spark=spark) as opened:
        opened.create_schema("s")
        opened.create_table("t", COLUMNS, primary_key="id").append([ROW])
        opened.create_table("plain", {"id": "int"})
        before = everything(opened)
        yield opened
        assert everything(opened) == before


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """A good row, as a Spark DataFrame."""
    return spark.sql(
        """
        SELECT 2L AS id, true AS flag, 1Y AS tiny, 1 AS number, 0.5F AS small_float,
          0.5D AS big_float, 1.50BD AS price, 'one' AS word, X'01' AS bytes,
          DATE '2024-02-29' AS day, TIMESTAMP '2024-02-29 12:00:00' AS moment,
          TIMESTAMP_NTZ '2024-02-29 12:00:00' AS local, array(1, NULL) AS list,
          array(TIMESTAMP '2024-02-29 12:00:00') AS times,
          named_struct('a', 1, 'b', 1F) AS pair, map('x', 1S) AS map
        """
    )
