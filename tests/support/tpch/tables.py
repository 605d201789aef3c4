"""The eight tables of TPC-H: columns, keys, rows, and the queries over them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support import queries as query_files

if TYPE_CHECKING:
    import duckdb

    import tailrace

MONEY = "decimal(15,2)"
# Rows of a part of a table that go into the lake at once: larger parts go through Spark.
LOCAL_ROWS = 200_000


@dataclass(frozen=True, kw_only=True)
class TpchTable:
    """A table's columns in Spark's types, and its primary key."""

    columns: dict[str, str]
    key: tuple[str, ...]


TABLES = {
    "region": TpchTable(
        columns={"r_regionkey": "bigint", "r_name": "string", "r_comment": "string"},
        key=("r_regionkey",),
    ),
    "nation": TpchTable(
        columns={
            "n_nationkey": "bigint",
            "n_name": "string",
            "n_regionkey": "bigint",
            "n_comment": "string",
        },
        key=("n_nationkey",),
    ),
    "supplier": TpchTable(
        columns={
            "s_suppkey": "bigint",
            "s_name": "string",
            "s_address": "string",
            "s_nationkey": "bigint",
            "s_phone": "string",
            "s_acctbal": MONEY,
            "s_comment": "string",
        },
        key=("s_suppkey",),
    ),
    "customer": TpchTable(
        columns={
            "c_custkey": "bigint",
            "c_name": "string",
            "c_address": "string",
            "c_nationkey": "bigint",
            "c_phone": "string",
            "c_acctbal": MONEY,
            "c_mktsegment": "string",
            "c_comment": "string",
        },
        key=("c_custkey",),
    ),
    "part": TpchTable(
        columns={
            "p_partkey": "bigint",
            "p_name": "string",
            "p_mfgr": "string",
            "p_brand": "string",
            "p_type": "string",
            "p_size": "int",
            "p_container": "string",
            "p_retailprice": MONEY,
            "p_comment": "string",
        },
        key=("p_partkey",),
    ),
    "partsupp": TpchTable(
        columns={
            "ps_partkey": "bigint",
            "ps_suppkey": "bigint",
            "ps_availqty": "int",
            "ps_supplycost": MONEY,
            "ps_comment": "string",
        },
        key=("ps_partkey", "ps_suppkey"),
    ),
    "orders": TpchTable(
        columns={
            "o_orderkey": "bigint",
            "o_custkey": "bigint",
            "o_orderstatus": "string",
            "o_totalprice": MONEY,
            "o_orderdate": "date",
            "o_orderpriority": "string",
            "o_clerk": "string",
            "o_shippriority": "int",
            "o_comment": "string",
        },
        key=("o_orderkey",),
    ),
    "lineitem": TpchTable(
        columns={
            "l_orderkey": "bigint",
            "l_partkey": "bigint",
            "l_suppkey": "bigint",
            "l_linenumber": "int",
            "l_quantity": MONEY,
            "l_extendedprice": MONEY,
            "l_discount": MONEY,
            "l_tax": MONEY,
            "l_returnflag": "string",
            "l_linestatus": "string",
            "l_shipdate": "date",
            "l_commitdate": "date",
            "l_receiptdate": "date",
            "l_shipinstruct": "string",
            "l_shipmode": "string",
            "l_comment": "string",
        },
        key=("l_orderkey", "l_linenumber"),
    ),
}


def queries(scale: float) -> dict[str, str]:
    """The queries `q01` to `q22` with the specification's validation parameters.

    One of these depends on the scale: the fraction of Q11.
    """
    found = query_files.read(Path(__file__).parent / "queries")
    found["q11"] = found["q11"].replace("0.0001000000", f"{0.0001 / scale:.10f}")
    return found


def generate(directory: Path, scale: float, *, parts: int = 1) -> None:
    """Write every table as so many Parquet files: `orders/orders.1.parquet`, …"""
    program = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run(
        [program, "parquet", "-q", "-s", f"{scale:g}", "-p", str(parts), "-o", directory],
        check=True,
    )


def load(lake: tailrace.Lake, directory: Path) -> None:
    """Create the tables in `main` and append what was generated, part by part, in its order.

    So an order and its lines are in the files of their part, as if orders had come in over time.
    """
    for name, table in TABLES.items():
        created = lake.create_table(name, table.columns, primary_key=table.key)
        for path in sorted((directory / name).glob("*.parquet"), key=_part):
            if pq.read_metadata(path).num_rows > LOCAL_ROWS:
                created.append(lake.spark.read.parquet(str(path)))
            else:
                created.append(_without_views(pq.read_table(path)))


def rows(connection: duckdb.DuckDBPyConnection, name: str, query: str) -> pa.Table:
    """What a query of DuckDB finds, with a table's columns in their types."""
    columns = ", ".join(
        f"{column}::{kind} AS {column}" for column, kind in TABLES[name].columns.items()
    )
    return connection.execute(f"SELECT {columns} FROM ({query})").to_arrow_table()


def _part(path: Path) -> int:
    return int(path.name.split(".")[-2])


def _without_views(rows: pa.Table) -> pa.Table:
    """The generator asks for Arrow's text views, which are just text."""
    fields = [
        field.with_type(pa.string()) if field.type == pa.string_view() else field
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))
