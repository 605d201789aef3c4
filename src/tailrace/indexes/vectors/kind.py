"""Vector indexes: the nearest of a column's vectors, by one of three metrics.

Always true: while a column has a vector index, its table refuses vectors of another dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.errors import Action, Fix, InvalidError
from tailrace.indexes.kind import IndexKind, Options, number, one_of
from tailrace.propagation import joblog
from tailrace.spark_sql.types import quote, spark_type
from tailrace.store import rows as row_checks
from tailrace.store import scan as local_scan
from tailrace.store.schema import Column, TableInfo
from tailrace.store.spark_actions import spark_faults
from tailrace.store.spark_scan import to_df

if TYPE_CHECKING:
    from tailrace.indexes.definition import Definition
    from tailrace.indexes.index_snapshot import IndexSnapshot
    from tailrace.indexes.kind import Hidden
    from tailrace.indexes.vectors.searcher import OpenVectors, VectorSearcher
    from tailrace.indexes.vectors.writer import VectorWriter
    from tailrace.store.runtime import Runtime
    from tailrace.store.scan import Scan
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
        """With its dimension, which all rows of the table have."""
        (column,) = definition.columns_of(table)
        scan = txn.scan(table.schema, table.name)
        scan = replace(scan, table=scan.table.narrowed([column.name]))
        dimension = definition.options.dimension or _first_dimension(txn.runtime, scan, column.name)
        if not dimension:
            raise InvalidError(
                f"{table.full_name}.{column.name} holds no vector yet",
                fix=Fix(Action.GIVE_DIMENSION),
            )
        if column.dimension is None:
            examples = _wrong_rows(txn.runtime, scan, column.name, dimension)
            if examples.num_rows:
                raise InvalidError(
                    f"{table.full_name}.{column.name}: a vector index of dimension {dimension} "
                    f"needs {dimension} finite numbers in every row, or NULL; not so in "
                    f"{_shown(examples, table, column)}"
                )
        return replace(definition, options=replace(definition.options, dimension=dimension))

    def constrain(self, txn: Transaction, table: TableInfo, definition: Definition) -> None:
        """Have the table refuse vectors of another dimension."""
        (column,) = definition.columns_of(table)
        if column.dimension != definition.options.dimension:
            _set_dimension(txn, table, column.name, definition.options.dimension)

    def release(self, txn: Transaction, table: TableInfo, definition: Definition) -> None:
        """Let the table take any vector again, unless another index needs the dimension."""
        left = [column.name for column in table.columns if column.id in definition.columns]
        if left and not _is_needed(txn, table, definition):
            _set_dimension(txn, table, left[0], None)

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


def _first_dimension(runtime: Runtime, scan: Scan, column: str) -> int:
    """The dimension of any vector; 0 if there is none."""
    if local_scan.is_small(scan, runtime):
        rows = local_scan.to_arrow(runtime, scan).column(column)
        lengths = pc.drop_null(pc.list_value_length(rows))
        return int(lengths[0].as_py()) if len(lengths) else 0
    from pyspark.sql import functions as F

    vector = quote(column)
    with spark_faults():
        frame = to_df(runtime, scan).where(F.col(vector).isNotNull())
        first = frame.select(F.size(vector)).first()
    return 0 if first is None else int(first[0])


def _wrong_rows(runtime: Runtime, scan: Scan, column: str, dimension: int) -> pa.Table:
    """Up to three rows whose vector does not fit."""
    if local_scan.is_small(scan, runtime):
        rows = local_scan.to_arrow(runtime, scan)
        return rows.take(pa.array(row_checks.wrong_vectors(rows.column(column), dimension)[:3]))
    from pyspark.sql import functions as F

    vector = quote(column)
    is_wrong = (
        f"{vector} is not null and (size({vector}) <> {dimension} or exists({vector}, "
        f"x -> x is null or isnan(x) or abs(x) > double('{row_checks.LARGEST_ELEMENT:g}')))"
    )
    with spark_faults():
        return to_df(runtime, scan).where(F.expr(is_wrong)).limit(3).toArrow()


def _shown(rows: pa.Table, table: TableInfo, column: Column) -> str:
    """Rows by their keys; without a key, by what is wrong with them."""
    keys = [key.name for key in table.key_columns]
    if keys:
        return ", ".join(str(row) for row in row_checks.plain_rows(rows.select(keys)))
    return ", ".join(f"[{len(v)} elements]" for v in rows.column(column.name).to_pylist())


def _set_dimension(txn: Transaction, table: TableInfo, column: str, value: int | None) -> None:
    txn.alter(table.schema, table.name, lambda info: info.with_dimension(column, value))


def _is_needed(txn: Transaction, table: TableInfo, definition: Definition) -> bool:
    with txn.runtime.database.read() as connection:
        jobs = joblog.following(connection, [table.id])
    return any(
        job.kind == definition.using
        and not txn.acts_for(job.id)
        and tuple(job.spec.consumer["column_ids"]) == definition.columns
        for job in jobs
    )
