"""Names, types and alterations that a lake does not take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tailrace
from tests.support.refused import refused

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "name", ["", ".", "a.", ".a", "a.b.c", "a`b", "`a", "``", "s.``", "a\0b", "x" * 256, None, 5]
)
def test_a_bad_table_name(lake: tailrace.Lake, name: Any) -> None:
    for use in (lake.table, lake.drop_table, lambda n: lake.create_table(n, {"id": "int"})):
        with refused(lake, tailrace.InvalidError, repr(name).strip("'")[:20]):
            use(name)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 256, None, 5])
def test_a_bad_schema_or_column_name(lake: tailrace.Lake, name: Any) -> None:
    uses: list[Callable[[], object]] = [
        lambda: lake.create_schema(name),
        lambda: lake.create_table("u", {name: "int"}),
        lambda: lake.table("plain").add_column(name, "int"),
        lambda: lake.table("plain").rename_column("id", name),
    ]
    for use in uses:
        with refused(lake, tailrace.InvalidError, "name"):
            use()


@pytest.mark.parametrize("name", ["_file", "_pos", "_change", "_snapshot", "_POS", "_Tailrace_x"])
def test_a_reserved_column_name(lake: tailrace.Lake, name: str) -> None:
    uses: list[Callable[[], object]] = [
        lambda: lake.create_table("u", {"id": "int", name: "int"}),
        lambda: lake.table("plain").add_column(name, "int"),
        lambda: lake.table("plain").rename_column("id", name),
    ]
    for use in uses:
        with refused(lake, tailrace.InvalidError, repr(name), "reserved"):
            use()


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "integr",
        "int int",
        "varchar(5)",
        "char(5)",
        "decimal(39,2)",
        "decimal(0,0)",
        "decimal(5,6)",
        "decimal(5,-1)",
        "decimal(5,2,1)",
        "decimal(a,b)",
        "array",
        "array<>",
        "array<int",
        "map<int>",
        "struct<>",
        "struct<int>",
        "struct<a:int,A:int>",
        "struct<a:int,a:string>",
        "array<void>",
        "interval",
        "interval day",
        "variant",
        "void",
        "null",
        "json",
        "int; drop table t",
        "int default 5",
        None,
        5,
    ],
)
def test_a_bad_type(lake: tailrace.Lake, kind: Any) -> None:
    with refused(lake, tailrace.InvalidError):
        lake.create_table("u", {"id": "int", "c": kind})
    with refused(lake, tailrace.InvalidError):
        lake.table("plain").add_column("c", kind)
    with refused(lake, tailrace.InvalidError):
        lake.table("plain").widen_column("id", kind)


def test_bad_columns_and_keys_of_a_new_table(lake: tailrace.Lake) -> None:
    def make(columns: Any, **options: Any) -> Callable[[], object]:
        return lambda: lake.create_table("u", columns, **options)

    for columns, key, shown in (
        ({}, None, "column"),
        (None, None, "columns"),
        (["id"], None, "columns"),
        ("id int", None, "columns"),
        ({"id": "int", "ID": "int"}, None, "'ID'"),
        (pa.schema([("id", pa.int64()), ("id", pa.int32())]), None, "'id'"),
        (pa.schema([("id", pa.time64("us"))]), None, "time64"),
        (pa.schema([("id", pa.null())]), None, "null"),
        (pa.schema([("id", pa.uint64())]), None, "uint64"),
        (pa.schema([("id", pa.struct([("a", pa.int8()), ("A", pa.int8())]))]), None, "'A'"),
        ({"id": "int"}, ["id", "ID"], "twice"),
        ({"id": "double"}, "id", "'id'"),
        ({"id": "array<int>"}, ["id"], "'id'"),
        ({"id": "map<int,int>"}, ["id"], "'id'"),
    ):
        with refused(lake, tailrace.InvalidError, shown):
            make(columns, primary_key=key)()
    with refused(lake, tailrace.NotFoundError, "'nothing'"):
        make({"id": "int"}, primary_key="nothing")()
    with refused(lake, tailrace.InvalidError, "main.T", "exists"):
        lake.create_table("T", {"id": "int"})
    with refused(lake, tailrace.InvalidError, "exists"):
        lake.create_schema("S")
    with refused(lake, tailrace.InvalidError, "exists"):
        lake.create_schema("main")


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("id", "int"),
        ("id", "bigint"),
        ("id", "decimal(20,0)"),
        ("id", "string"),
        ("number", "smallint"),
        ("number", "double"),
        ("number", "float"),
        ("big_float", "float"),
        ("price", "decimal(4,2)"),
        ("price", "decimal(5,2)"),
        ("price", "decimal(10,1)"),
        ("price", "decimal(10,3)"),
        ("price", "double"),
        ("word", "binary"),
        ("day", "timestamp"),
        ("local", "timestamp"),
        ("list", "array<bigint>"),
        ("pair", "struct<a:bigint,b:float>"),
        ("flag", "tinyint"),
    ],
)
def test_a_type_that_would_not_hold_every_value(
    lake: tailrace.Lake, column: str, kind: str
) -> None:
    with refused(lake, tailrace.InvalidError, f"main.t.{column}", kind.split("<", maxsplit=1)[0]):
        lake.table("t").widen_column(column, kind)


def test_columns_that_cannot_go_or_come(lake: tailrace.Lake) -> None:
    table = lake.table("t")
    uses: list[tuple[Callable[[], object], str]] = [
        (lambda: table.drop_column("ID"), "primary key"),
        (lambda: lake.table("plain").drop_column("id"), "last column"),
        (lambda: table.add_column("WORD", "int"), "'WORD'"),
        (lambda: table.rename_column("day", "Word"), "'Word'"),
        (lambda: lake.drop_schema("main"), "'main'"),
    ]
    for use, shown in uses:
        with refused(lake, tailrace.InvalidError, shown):
            use()


def test_a_schema_with_tables_cannot_be_dropped(tmp_path: Any) -> None:
    with tailrace.connect(tmp_path) as other:
        other.create_schema("full")
        other.create_table("full.t", {"id": "int"})
        with refused(other, tailrace.InvalidError, "'full'", "t"):
            other.drop_schema("full")
