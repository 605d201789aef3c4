"""Column types, in the three spellings that meet in a lake.

A type is an Arrow type of a fixed shape (`canonical`). Users write Spark's spelling, the catalog
keeps DuckLake's, and files carry Parquet's, which Arrow derives. This module knows no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from tailrace import spark_sql
from tailrace.arguments import show
from tailrace.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Types inside each other, and characters of a type's name.
DEEPEST, LONGEST = 32, 100_000

TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")

# Arrow type, Spark's name, DuckLake's name.
_ATOMIC: tuple[tuple[pa.DataType, str, str], ...] = (
    (pa.bool_(), "boolean", "boolean"),
    (pa.int8(), "tinyint", "int8"),
    (pa.int16(), "smallint", "int16"),
    (pa.int32(), "int", "int32"),
    (pa.int64(), "bigint", "int64"),
    (pa.float32(), "float", "float32"),
    (pa.float64(), "double", "float64"),
    (pa.string(), "string", "varchar"),
    (pa.binary(), "binary", "blob"),
    (pa.date32(), "date", "date"),
    (TIMESTAMP, "timestamp", "timestamptz"),
    (TIMESTAMP_NTZ, "timestamp_ntz", "timestamp"),
)
_TO_SPARK = {arrow: spark for arrow, spark, _ in _ATOMIC}
_TO_LAKE = {arrow: lake for arrow, _, lake in _ATOMIC}
_FROM_LAKE = {lake: arrow for arrow, _, lake in _ATOMIC}
_FROM_SPARK = {spark: arrow for arrow, spark, _ in _ATOMIC} | {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "real": pa.float32(),
    "timestamp_ltz": TIMESTAMP,
}
# What sqlglot makes of the names above.
_FROM_SQLGLOT = {
    exp.DataType.build(spark, dialect="spark").this: arrow for spark, arrow in _FROM_SPARK.items()
}

_WIDER: dict[pa.DataType, tuple[pa.DataType, ...]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64()),
    pa.int16(): (pa.int32(), pa.int64()),
    pa.int32(): (pa.int64(),),
    pa.float32(): (pa.float64(),),
}


def parse_type(text: str) -> pa.DataType:
    """The type that a Spark type name stands for, for example `map<string, decimal(12,2)>`."""
    if not isinstance(text, str):
        raise InvalidError(f"a type is text, as in 'bigint', and not {show(text)}")
    plain = _FROM_SPARK.get(text.strip().lower())
    if plain is not None:
        return plain
    _check_size(text)
    try:
        # Alone, sqlglot overlooks what follows a type; in a cast it doesn't. The cast comes first,
        # because its work is bounded.
        whole = spark_sql.parse_one(f"CAST(x AS {text})")
        tree = exp.DataType.build(text, dialect="spark")
    except (sqlglot.errors.SqlglotError, ValueError) as error:
        raise InvalidError(
            f"cannot read the type {show(text)}: write it as Spark SQL does"
        ) from error
    more = {key for key, value in whole.args.items() if value} - {"this", "to"}
    if not isinstance(whole, exp.Cast) or not isinstance(whole.this, exp.Column) or more:
        raise InvalidError(f"cannot read the type {show(text)}: write it as Spark SQL does")
    return _from_tree(tree, text)


def _check_size(text: str) -> None:
    """Refuse names that would take long to parse, and are of no use."""
    depth = deepest = 0
    for mark in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(mark, 0)
        deepest = max(deepest, depth)
    if len(text) > LONGEST or deepest > DEEPEST:
        raise InvalidError(
            f"the type {show(text)} is too large: at most {LONGEST:,} characters are read, and "
            f"{DEEPEST} types inside each other"
        )


def check_depth(kind: pa.DataType) -> None:
    """Refuse a type that is nested too deeply, before anything recurses into it."""
    level = [kind]
    for _ in range(DEEPEST + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise InvalidError(f"a type has at most {DEEPEST} types inside each other")


def _inside(kind: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_dictionary(kind):
        return [kind.value_type]
    return [kind.field(number).type for number in range(kind.num_fields)]


def _from_tree(tree: exp.DataType, text: str) -> pa.DataType:
    kind = tree.this
    children = tree.expressions
    if kind == exp.DataType.Type.DECIMAL:
        digits = [child.name for child in children] or ["10"]
        if len(digits) > 2 or not all(part.isdecimal() for part in digits):
            raise InvalidError(f"{text!r}: write a decimal as decimal(precision, scale)")
        precision, scale = (*map(int, digits), 0)[:2]
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise InvalidError(f"{text!r}: a decimal has 1 to 38 digits and at most as many places")
        return pa.decimal128(precision, scale)
    if kind == exp.DataType.Type.ARRAY and len(children) == 1:
        return list_of(_from_tree(children[0], text))
    if kind == exp.DataType.Type.MAP and len(children) == 2:
        return map_of(_from_tree(children[0], text), _from_tree(children[1], text))
    if kind == exp.DataType.Type.STRUCT and children:
        fields = []
        for child in children:
            if not isinstance(child, exp.ColumnDef) or child.kind is None:
                raise InvalidError(f"{text!r}: write a struct as struct<name: type, …>")
            fields.append(pa.field(child.name, _from_tree(child.kind, text)))
        return pa.struct(fields)
    atomic = None if children else _FROM_SQLGLOT.get(kind)
    if atomic is None:
        known = ", ".join(sorted(spark for _, spark, _ in _ATOMIC))
        raise InvalidError(
            f"the type {show(text)} is not supported: use {known}, decimal(p,s), "
            "or array, struct and map of these"
        )
    return atomic


def from_spark(described: Any) -> pa.DataType:
    """The type that Spark describes with `DataType.jsonValue()`."""
    if isinstance(described, str):
        return parse_type(described)
    kind = described["type"]
    if kind == "array":
        return list_of(from_spark(described["elementType"]))
    if kind == "map":
        return map_of(from_spark(described["keyType"]), from_spark(described["valueType"]))
    if kind == "struct" and described["fields"]:
        return pa.struct([pa.field(f["name"], from_spark(f["type"])) for f in described["fields"]])
    raise InvalidError(f"a Spark column of type {kind!r} cannot be stored in a lake")


def of_columns(schema: StructType) -> dict[str, pa.DataType]:
    """The types of a Spark schema's columns; of bare NULLs, which fit anywhere, `null`."""
    described = {field["name"]: field["type"] for field in schema.jsonValue()["fields"]}
    return {n: pa.null() if kind == "void" else from_spark(kind) for n, kind in described.items()}


def list_of(element: pa.DataType) -> pa.DataType:
    """A list, its element named as Parquet prescribes."""
    return pa.list_(pa.field("element", element))


def map_of(key: pa.DataType, value: pa.DataType) -> pa.DataType:
    """A map with nullable values."""
    return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value))


def canonical(given: pa.DataType) -> pa.DataType:
    """The type in which a lake stores values of an Arrow type that came from outside."""
    check_depth(given)
    return _canonical(given)


def _canonical(given: pa.DataType) -> pa.DataType:
    if given in _TO_SPARK:
        return given
    if pa.types.is_large_string(given) or pa.types.is_string_view(given):
        return pa.string()
    if pa.types.is_large_binary(given) or pa.types.is_binary_view(given):
        return pa.binary()
    if pa.types.is_fixed_size_binary(given):
        return pa.binary()
    if pa.types.is_timestamp(given):
        return TIMESTAMP if given.tz else TIMESTAMP_NTZ
    if pa.types.is_date64(given):
        return pa.date32()
    if pa.types.is_decimal(given) and given.precision <= 38 and given.scale >= 0:
        return pa.decimal128(given.precision, given.scale)
    if pa.types.is_dictionary(given):
        return _canonical(given.value_type)
    if pa.types.is_map(given):
        return map_of(_canonical(given.key_type), _canonical(given.item_type))
    if _is_list(given):
        return list_of(_canonical(given.value_type))
    if pa.types.is_struct(given) and given.num_fields:
        return pa.struct([pa.field(f.name, _canonical(f.type)) for f in given])
    raise InvalidError(f"values of the Arrow type {given} cannot be stored in a lake")


def spark_type(kind: pa.DataType, timestamp: str = "timestamp") -> str:
    """Spark's spelling of a canonical type."""
    if kind == TIMESTAMP:
        return timestamp
    if kind in _TO_SPARK:
        return _TO_SPARK[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    children = [spark_type(child.type, timestamp) for child in children_of(kind)]
    if pa.types.is_map(kind):
        return f"map<{children[0]},{children[1]}>"
    if pa.types.is_list(kind):
        return f"array<{children[0]}>"
    names = (quote(field.name) for field in kind)
    fields = ",".join(f"{name}:{child}" for name, child in zip(names, children, strict=True))
    return f"struct<{fields}>"


def spark_schema(schema: pa.Schema) -> str:
    """A schema of canonical types that Spark reads the same in every session.

    What a plain `timestamp` means depends on the setting spark.sql.timestampType.
    """
    return ", ".join(f"{quote(f.name)} {spark_type(f.type, 'timestamp_ltz')}" for f in schema)


def lake_type(kind: pa.DataType) -> str:
    """DuckLake's name of a canonical type, or of the outermost part of a nested one."""
    if kind in _TO_LAKE:
        return _TO_LAKE[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_map(kind):
        return "map"
    return "list" if pa.types.is_list(kind) else "struct"


def from_lake_type(name: str, children: list[tuple[str, pa.DataType]]) -> pa.DataType:
    """The type of a catalog row, given the names and types of the rows below it."""
    if name in _FROM_LAKE:
        return _FROM_LAKE[name]
    if name.startswith("decimal("):
        precision, scale = name[len("decimal(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if name == "list":
        return list_of(children[0][1])
    if name == "map":
        return map_of(children[0][1], children[1][1])
    if name == "struct":
        return pa.struct([pa.field(child, kind) for child, kind in children])
    raise InvalidError(f"this lake has a column of type {name!r}, which Tailrace cannot read")


def children_of(kind: pa.DataType) -> list[pa.Field]:
    """The fields directly inside a nested type; nothing for an atomic one."""
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if pa.types.is_list(kind):
        return [kind.value_field]
    return list(kind) if pa.types.is_struct(kind) else []


def is_atomic(kind: pa.DataType) -> bool:
    """True for anything but arrays, maps and structs."""
    return not pa.types.is_nested(kind)


def can_be_key(kind: pa.DataType) -> bool:
    """Whether it may be a key. Not floats: NaN and the two zeros make "equal" ambiguous."""
    return is_atomic(kind) and not pa.types.is_floating(kind)


def can_widen(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of `old` is one of `new`, so that old files need no rewrite."""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale == old.scale and new.precision > old.precision)
    return new in _WIDER.get(old, ())


def accepts(column: pa.DataType, given: pa.DataType) -> bool:
    """Whether values of `given` may be tried on a column; a value that doesn't fit fails later.

    Numbers may come in any numeric type that holds them exactly; text is never read as a number,
    and a time with a zone is never taken for one without.
    """
    if pa.types.is_null(given):
        return True
    if pa.types.is_map(column):
        return (
            pa.types.is_map(given)
            and _accepts_inside(column.key_type, given.key_type)
            and _accepts_inside(column.item_type, given.item_type)
        )
    if pa.types.is_list(column):
        is_list = _is_list(given) and not pa.types.is_map(given)
        return is_list and _accepts_inside(column.value_type, given.value_type)
    if pa.types.is_struct(column):
        return (
            pa.types.is_struct(given)
            and sorted(f.name for f in column) == sorted(f.name for f in given)
            and all(_accepts_inside(f.type, given.field(f.name).type) for f in column)
        )
    if pa.types.is_floating(column):
        return bool(pa.types.is_floating(given) or pa.types.is_integer(given))
    if pa.types.is_integer(column):
        return bool(pa.types.is_integer(given))
    if pa.types.is_decimal(column):
        return bool(pa.types.is_decimal(given) or pa.types.is_integer(given))
    try:
        return bool(canonical(given) == column)
    except InvalidError:
        return False


def _accepts_inside(column: pa.DataType, given: pa.DataType) -> bool:
    # Doubles that are too large for a float are only looked for in columns, not inside of values.
    narrowed = pa.types.is_float32(column) and pa.types.is_float64(given)
    return not narrowed and accepts(column, given)


def _is_list(given: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(given)
        or pa.types.is_large_list(given)
        or pa.types.is_fixed_size_list(given)
        or pa.types.is_list_view(given)
    )


def quote(name: str) -> str:
    """A name as Spark SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"
