"""Types in Spark's, DuckLake's and Arrow's spelling are one."""

from __future__ import annotations

import pyarrow as pa
import pytest

import tailrace
from tailrace.spark_sql.types import (
    TIMESTAMP,
    TIMESTAMP_NTZ,
    accepts,
    can_be_key,
    can_widen,
    canonical,
    children_of,
    from_lake_type,
    from_spark,
    lake_type,
    list_of,
    map_of,
    parse_type,
    quote,
    spark_schema,
    spark_type,
)

STRUCT = pa.struct([pa.field("a b", pa.int32()), pa.field("c", list_of(pa.string()))])
EVERY = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "decimal(12,2)": pa.decimal128(12, 2),
    "array<int>": list_of(pa.int32()),
    "map<string,double>": map_of(pa.string(), pa.float64()),
    "struct<`a b`:int,`c`:array<string>>": STRUCT,
}


@pytest.mark.parametrize(("name", "kind"), EVERY.items())
def test_names_of_spark_there_and_back(name: str, kind: pa.DataType) -> None:
    assert parse_type(name) == kind
    assert spark_type(kind) == name


@pytest.mark.parametrize("kind", EVERY.values())
def test_names_of_the_catalog_there_and_back(kind: pa.DataType) -> None:
    children = [(field.name, field.type) for field in children_of(kind)]
    assert from_lake_type(lake_type(kind), children) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (" BIGINT ", pa.int64()),
        ("long", pa.int64()),
        ("short", pa.int16()),
        ("real", pa.float32()),
        ("timestamp_ltz", TIMESTAMP),
        ("decimal", pa.decimal128(10, 0)),
        ("numeric(5)", pa.decimal128(5, 0)),
        ("varchar(9)", None),
        ("interval", None),
    ],
)
def test_other_names(name: str, kind: pa.DataType | None) -> None:
    if kind is None:
        with pytest.raises(tailrace.InvalidError, match="not supported"):
            parse_type(name)
    else:
        assert parse_type(name) == kind


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("decimal(39,2)", "1 to 38 digits"),
        ("decimal(3,4)", "at most as many places"),
        ("int) + (b", "cannot read the type"),
        ("array<", "cannot read the type"),
        ("array<" * 40 + "int" + ">" * 40, "too large"),
        (7, "a type is text"),
    ],
)
def test_what_is_no_type_is_named(name: object, message: str) -> None:
    with pytest.raises(tailrace.InvalidError, match=message):
        parse_type(name)  # type: ignore[arg-type]


def test_types_as_spark_describes_them() -> None:
    described = {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "b", "type": {"type": "array", "elementType": "string"}},
            {"name": "c", "type": {"type": "map", "keyType": "date", "valueType": "decimal(9,2)"}},
        ],
    }
    assert from_spark(described) == pa.struct(
        [
            ("a", pa.int64()),
            ("b", list_of(pa.string())),
            ("c", map_of(pa.date32(), pa.decimal128(9, 2))),
        ]
    )


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.large_string(), pa.string()),
        (pa.binary(16), pa.binary()),
        (pa.timestamp("ns"), TIMESTAMP_NTZ),
        (pa.timestamp("s", tz="Europe/Berlin"), TIMESTAMP),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.large_list(pa.date64()), list_of(pa.date32())),
        (pa.map_(pa.string(), pa.large_binary()), map_of(pa.string(), pa.binary())),
    ],
)
def test_arrow_types_from_outside_get_the_shape_of_a_lake(
    given: pa.DataType, stored: pa.DataType
) -> None:
    assert canonical(given) == stored


@pytest.mark.parametrize("given", [pa.uint8(), pa.time32("s"), pa.struct([]), pa.duration("s")])
def test_arrow_types_that_no_lake_stores(given: pa.DataType) -> None:
    with pytest.raises(tailrace.InvalidError, match="cannot be stored"):
        canonical(given)


@pytest.mark.parametrize(
    ("old", "new", "widens"),
    [
        ("tinyint", "bigint", True),
        ("float", "double", True),
        ("decimal(5,2)", "decimal(9,2)", True),
        ("decimal(5,2)", "decimal(9,3)", False),
        ("int", "double", False),
        ("bigint", "int", False),
    ],
)
def test_widening_keeps_every_value(old: str, new: str, *, widens: bool) -> None:
    assert can_widen(parse_type(old), parse_type(new)) is widens


@pytest.mark.parametrize(
    ("column", "given", "taken"),
    [
        ("int", pa.int64(), True),  # a value that doesn't fit fails later
        ("int", pa.float64(), False),
        ("double", pa.int64(), True),
        ("decimal(9,2)", pa.int8(), True),
        ("date", pa.string(), False),
        ("timestamp", pa.timestamp("us"), False),
        ("string", pa.null(), True),
        ("array<float>", pa.list_(pa.float64()), False),
        ("struct<a:int,b:string>", pa.struct([("b", pa.string()), ("a", pa.int8())]), True),
        ("struct<a:int>", pa.struct([("b", pa.int32())]), False),
    ],
)
def test_what_a_column_takes(column: str, given: pa.DataType, *, taken: bool) -> None:
    assert accepts(parse_type(column), given) is taken


def test_keys_have_one_meaning_of_equal() -> None:
    assert can_be_key(pa.string())
    assert not can_be_key(pa.float64())
    assert not can_be_key(list_of(pa.int32()))


def test_names_are_quoted() -> None:
    assert quote("a`b") == "`a``b`"
    schema = pa.schema([("a b", TIMESTAMP), ("c", pa.int32())])
    assert spark_schema(schema) == "`a b` timestamp_ltz, `c` int"
