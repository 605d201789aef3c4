"""What tests of indexes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tests.indexes.review import fill, text_index, vector_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def read_only_review(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Any:
    with tailrace.connect(tmp_path_factory.mktemp("review"), spark=spark) as lake:
        fill(lake)
        text_index(lake)
        vector_index(lake)
        yield lake
