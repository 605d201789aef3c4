"""Names, columns and keys, without any engine."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from tailrace.errors import InvalidError, NotFoundError
from tailrace.spark_sql import types
from tailrace.store.names import split_name
from tailrace.store.schema import TableInfo, new_columns, parse_columns


def make(columns: dict[str, str], *, key: list[str] | None = None) -> TableInfo:
    bare = TableInfo(
        id=1, uuid="u", schema_id=0, schema="main", name="t", path="main/t/", columns=()
    )
    return new_columns(bare, parse_columns(columns), key or [])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("orders", ("main", "orders")),
        ("sales.orders", ("sales", "orders")),
        ("`a.b`.c", ("a.b", "c")),
        ("`tick``ed`", ("main", "tick`ed")),
        ("größe.名前", ("größe", "名前")),
        ("two words", ("main", "two words")),
    ],
)
def test_a_name_is_a_schema_and_a_table(text: str, parts: tuple[str, str]) -> None:
    assert split_name(text) == parts


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c", "`a", "a`b", "x" * 300, 7])
def test_what_is_no_name_is_refused(text: object) -> None:
    with pytest.raises(InvalidError):
        split_name(text)


@pytest.mark.parametrize(
    "text",
    [
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "decimal(38,18)",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "array<map<string,struct<`a b`:int,`c``d`:array<binary>>>>",
    ],
)
def test_a_type_survives_every_spelling(text: str) -> None:
    kind = types.parse_type(text)
    assert types.spark_type(kind) == text
    assert types.parse_type(types.spark_type(kind)) == kind
    assert types.canonical(kind) == kind


@pytest.mark.parametrize(
    "text", ["nonsense", "decimal(39,0)", "decimal(3,5)", "array", "map<int>", "int)", "varchar(9)"]
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match=r"type|decimal"):
        types.parse_type(text)


def test_a_physical_name_is_kept_for_life_and_never_given_again() -> None:
    table = make({"id": "int", "Note": "string"})
    renamed = table.with_renamed("note", "remark")
    assert renamed.column("remark").physical == "Note"
    again = renamed.with_column("note", parse_columns({"x": "int"})[0][1])
    assert again.column("note").physical == "note_3"
    dropped = again.without_column("note").with_column("NOTE", pa.int32())
    assert dropped.column("note").physical == "NOTE_4"


def test_a_nested_column_takes_an_id_for_each_field_inside() -> None:
    table = make({"a": "int", "s": "struct<x: array<int>, y: map<string, int>>", "z": "int"})
    column = table.column("s")
    assert column.id == 2
    assert column.inner == (3, 4, 5, 6, 7)
    assert table.column("z").id == 8
    field = column.field
    assert field.type.field("x").type.value_field.metadata == {b"PARQUET:field_id": b"4"}
    assert field.type.field("y").type.item_field.metadata == {b"PARQUET:field_id": b"7"}


def test_key_columns_are_not_nullable_and_not_floats() -> None:
    table = make({"b": "string", "a": "int"}, key=["A", "b"])
    assert [column.name for column in table.key_columns] == ["a", "b"]
    assert not any(column.nullable for column in table.key_columns)
    for kind in ("double", "array<int>"):
        with pytest.raises(InvalidError, match="cannot be part of a primary key"):
            make({"a": kind}, key=["a"])
    with pytest.raises(NotFoundError, match="no column 'c'"):
        make({"a": "int"}, key=["c"])


def test_errors_survive_pickling() -> None:
    error = InvalidError("fix me")
    assert str(pickle.loads(pickle.dumps(error))) == "fix me"
    assert type(pickle.loads(pickle.dumps(error))) is InvalidError
