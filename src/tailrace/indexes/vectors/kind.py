"""Vector indexes: the nearest of a column's vectors, by one of three metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.errors import InvalidError
from tailrace.indexes.kind import IndexKind, Options, Training, number, one_of
from tailrace.spark_sql.types import spark_type
from tailrace.store.schema import Column, TableInfo

if TYPE_CHECKING:
    from tailrace.indexes.definition import Definition
    from tailrace.indexes.index_snapshot import IndexSnapshot
    from tailrace.indexes.kind import Hidden
    from tailrace.indexes.vectors.searcher import OpenVectors, VectorSearcher
    from tailrace.indexes.vectors.writer import VectorWriter
    from tailrace.store.transaction import Transaction

COSINE, INNER_PRODUCT, L2 = "cosine", "inner_product", "l2"
METRICS = (COSINE, INNER_PRODUCT, L2)
_LONGEST = 65_536  # a vector's dimension


@dataclass(frozen=True, kw_only=True)
class VectorOptions(Options):
    """What is near, and how often the nearest are to be found."""

    metric: str = COSINE
    dimension: int = 0  # 0 until it is known
    recall: float = 0.95


class Vector(IndexKind):
    """On faiss."""

    name = "vector"
    options_type = VectorOptions
    query_type, query_name, query_example = "array", "vector", "array(0.1, 0.2)"
    is_trained = True
    shares_row_groups = False  # vectors are as much work to read as to divide

    @property
    def format(self) -> str:
        from tailrace.indexes.vectors.writer import FORMAT

        return FORMAT

    @property
    def training(self) -> Training:
        from tailrace.indexes.vectors import training

        return training

    def check_installed(self) -> None:
        import tailrace.indexes.vectors.comparison  # noqa: F401

    def define(
        self, table: TableInfo, columns: list[Column], given: dict[str, Any]
    ) -> VectorOptions:
        if len(columns) != 1:
            raise InvalidError("a vector index is of one column")
        (column,) = columns
        inner = column.type.value_type if pa.types.is_list(column.type) else None
        if inner not in (pa.float32(), pa.float64()):
            raise InvalidError(
                f"{table.full_name}.{column.name} is {spark_type(column.type)}: "
                "a vector index needs array<float>"
            )
        metric = given.pop("metric", COSINE)
        if isinstance(metric, str) and metric.casefold() in ("ip", "dot", "inner product"):
            metric = INNER_PRODUCT
        dimension = number("dimension", given.pop("dimension", column.dimension or 0))
        if not 0 <= dimension <= _LONGEST or dimension != int(dimension):
            raise InvalidError(f"a dimension is a whole number up to {_LONGEST}, not {dimension!r}")
        if column.dimension not in (None, int(dimension)):
            raise InvalidError(
                f"{table.full_name}.{column.name} has another index, of dimension "
                f"{column.dimension}"
            )
        recall = number("recall", given.pop("recall", 0.95))
        if not 0.5 <= recall <= 1:
            raise InvalidError(f"a recall is a share between 0.5 and 1, not {recall!r}")
        return VectorOptions(
            metric=one_of("metric", metric, METRICS), dimension=int(dimension), recall=recall
        )

    def complete(self, txn: Transaction, table: TableInfo, definition: Definition) -> Definition:
        from tailrace.indexes.vectors import dimension

        return dimension.complete(txn, table, definition)

    def constrain(self, txn: Transaction, table: TableInfo, definition: Definition) -> None:
        from tailrace.indexes.vectors import dimension

        dimension.constrain(txn, table, definition)

    def release(self, txn: Transaction, table: TableInfo, definition: Definition) -> None:
        from tailrace.indexes.vectors import dimension

        dimension.release(txn, table, definition)

    def writer(
        self,
        definition: Definition,
        directory: Path,
        *,
        small: bool,  # noqa: ARG002
        centroids: Any | None,
    ) -> VectorWriter:
        from tailrace.indexes.vectors.writer import VectorWriter

        return VectorWriter(definition.options, directory, centroids)

    def open(
        self,
        definition: Definition,
        directory: Path,
        temporary: Callable[[], Path],  # noqa: ARG002
        centroids: tuple[int, Any] | None,
    ) -> OpenVectors:
        from tailrace.indexes.vectors.searcher import OpenVectors

        number, quantizer = centroids or (None, None)
        return OpenVectors.open(definition.options, directory, number, quantizer)

    def searcher(
        self,
        snapshot: IndexSnapshot,
        segments: Sequence[tuple[OpenVectors, Hidden]],
        temporary: Callable[[], Path],  # noqa: ARG002
    ) -> VectorSearcher:
        from tailrace.indexes.vectors.searcher import VectorSearcher

        probes = {number: one.probes for number, one in snapshot.parts.centroids.items()}
        return VectorSearcher(snapshot.definition.options, segments, probes)
