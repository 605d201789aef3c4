"""Every type and every odd name, through every writer and reader, with the same values."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import tailrace
from tests.oracle.values import comparable
from tests.support import duck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

Value = Any
Rows = list[dict[str, Value]]


def aware(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


def naive(*parts: int) -> datetime:
    return aware(*parts).replace(tzinfo=None)


MOMENTS = [
    (1, 1, 1, 0, 0, 0, 0),
    (1500, 2, 28, 23, 59, 59, 999999),
    (1582, 10, 4, 12),
    (1582, 10, 15, 0, 0, 0, 1),
    (1899, 12, 31, 23, 59, 59, 999999),
    (1969, 12, 31, 23, 59, 59, 999999),
    (1970, 1, 1),
    (2024, 2, 29, 12, 30, 15, 123456),
    (2262, 4, 12),  # beyond what nanoseconds reach
    (9999, 12, 31, 23, 59, 59, 999999),
]
DATES = [
    date(1, 1, 1),
    date(1500, 2, 28),
    date(1582, 10, 4),
    date(1969, 12, 31),
    date(1970, 1, 1),
    date(2024, 2, 29),
    date(9999, 12, 31),
]
TEXTS = [
    "",
    " ",
    "a",
    "NULL",
    "null",
    "é",  # one character …
    "e\u0301",  # … and two that look like it
    "漢字",
    "🦆🏴‍☠️",
    "\U0010ffff",
    "\ud7ff",
    "nul\0inside",
    "\0",
    "line\nbreak\r\ttab",
    "'single' \"double\" `back` \\slash",
    "z" * 300,
    "z" * 5000,
]
DECIMALS = [(1, 0), (1, 1), (4, 2), (5, 5), (9, 0), (10, 2), (18, 6), (19, 0), (28, 10), (38, 0)]
DECIMALS += [(38, 18), (38, 38)]


def decimals(precision: int, scale: int) -> list[Decimal]:
    largest = 10**precision - 1
    # As a tuple of digits, because arithmetic would round to the context's 28 places.
    return [
        Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale))
        for n in (largest, -largest, 0, 1, -1)
    ]


ATOMIC: dict[str, list[Value]] = {
    "boolean": [True, False],
    "tinyint": [-128, 127, 0],
    "smallint": [-(2**15), 2**15 - 1, 0],
    "int": [-(2**31), 2**31 - 1, 0],
    "bigint": [-(2**63), 2**63 - 1, 0, 2**53 + 1],
    "float": [0.0, -0.0, 1.5, inf, -inf, nan, 3.4028234663852886e38, 1.401298464324817e-45],
    "double": [0.0, -0.0, 0.1, inf, -inf, nan, 1.7976931348623157e308, 5e-324],
    "string": TEXTS,
    "binary": [b"", b"\0", b"\xff\xfe", bytes(range(256)), b"x" * 5000],
    "date": DATES,
    "timestamp": [aware(*parts) for parts in MOMENTS],
    "timestamp_ntz": [naive(*parts) for parts in MOMENTS],
    **{f"decimal({p},{s})": decimals(p, s) for p, s in DECIMALS},
}
NESTED: dict[str, list[Value]] = {
    "array<int>": [[], [None], [1, None, -(2**31)]],
    "array<array<string>>": [[], [None], [[]], [["", None, "\0"], [], None]],
    "array<struct<a:decimal(38,18),b:date>>": [
        [],
        [None, {"a": None, "b": None}],
        [{"a": Decimal("-0.000000000000000001"), "b": date(1, 1, 1)}],
    ],
    "array<map<string,timestamp>>": [[{}], [None, {"": None, "x": aware(1500, 1, 1)}]],
    "struct<a:int>": [{"a": None}, {"a": 1}],
    "struct<a:struct<b:double,c:binary>,d:timestamp_ntz>": [
        {"a": None, "d": None},
        {"a": {"b": None, "c": None}, "d": naive(9999, 12, 31)},
        {"a": {"b": -0.0, "c": b""}, "d": naive(1, 1, 1)},
        {"a": {"b": nan, "c": b"\0"}, "d": None},
    ],
    "struct<a:array<bigint>,m:map<int,boolean>>": [
        {"a": None, "m": None},
        {"a": [], "m": {}},
        {"a": [None, 2**63 - 1], "m": {0: None, -1: True}},
    ],
    "map<string,int>": [{}, {"": None}, {"a": 1, "ü": -1, "\0": 0}],
    "map<decimal(10,2),array<float>>": [
        {Decimal("1.50"): [inf, None, -0.0], Decimal("0.00"): None}
    ],
    "map<date,struct<a:smallint,b:string>>": [{date(1, 1, 1): {"a": None, "b": ""}}],
    "map<bigint,map<timestamp,tinyint>>": [{1: None, 2: {}, 3: {aware(1582, 10, 4): -128}}],
}
ALL = ATOMIC | NESTED
# Columns are called by numbers: what they hold is the matter here.
COLUMNS = {"n": "int"} | {f"c{number}": kind for number, kind in enumerate(ALL)}


def every_value() -> Rows:
    """Rows in which every value occurs, and one of NULLs."""
    rows: Rows = [
        {"n": n} | {f"c{c}": values[n % len(values)] for c, values in enumerate(ALL.values())}
        for n in range(max(map(len, ALL.values())))
    ]
    nulls: dict[str, Value] = dict.fromkeys(COLUMNS)
    return [*rows, nulls | {"n": len(rows)}]


def values_by_row(rows: Rows) -> dict[int, list[Value]]:
    """Comparable values, and maps as lists of pairs, by the number of the row."""
    return {row["n"]: [comparable(_plain(row[name])) for name in COLUMNS] for row in rows}


def _plain(value: Value) -> Value:
    """A dict for a struct and pairs for a map, as Arrow gives them, all the way down."""
    if isinstance(value, dict) and not set(value) <= {"a", "b", "c", "d", "m"}:
        return [(_plain(key), _plain(inner)) for key, inner in value.items()]
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return (_plain(value[0]), _plain(value[1]))
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)  # keys of maps are compared as Python prints them
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def check(found: pa.Table, schema: pa.Schema, expected: dict[int, list[Value]]) -> None:
    rows = values_by_row(found.cast(schema).to_pylist())
    assert rows.keys() == expected.keys()
    for n, values in expected.items():
        for kind, got, want in zip(COLUMNS.values(), rows[n], values, strict=True):
            assert got == want, f"{kind} in row {n}"


def check_columns(table: tailrace.Table) -> None:
    """The types as they were given, but for the spelling of fields' names."""
    described = {name: kind.replace("`", "") for name, kind in table.columns.items()}
    assert described == COLUMNS


def test_every_value_of_every_type_is_read_as_it_was_written(
    lake: tailrace.Lake, lake_args: LakeArgs
) -> None:
    rows = every_value()
    expected = values_by_row(rows)
    table = lake.create_table("t", COLUMNS)
    half = len(rows) // 2
    table.append(rows[:half])
    table.append(rows[half:])
    schema = table.info.arrow_schema
    check_columns(table)
    check(table.to_arrow(), schema, expected)
    check(table.to_df().toArrow(), schema, expected)
    with duck.attach(lake_args) as reader:
        check(duck.read(reader, "t"), schema, expected)


def test_every_value_of_every_type_goes_through_spark_and_arrow(
    sqlite_lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    rows = every_value()
    expected = values_by_row(rows)
    first = sqlite_lake.create_table("first", COLUMNS)
    first.append(rows)
    schema = first.info.arrow_schema
    # The definition from each kind of schema, and the rows in the form that goes with it.
    spark_frame = first.to_df()
    by_spark = sqlite_lake.create_table("by_spark", spark_frame.schema, primary_key="n")
    by_spark.append(spark_frame)
    by_arrow = sqlite_lake.create_table("by_arrow", schema)
    by_arrow.append(first.to_arrow())
    for table in (by_spark, by_arrow):
        check_columns(table)
        check(table.to_arrow(), schema, expected)
    by_spark.delete("n % 2 = 1")
    even = {n: values for n, values in expected.items() if n % 2 == 0}
    check(by_spark.to_arrow(), schema, even)
    check(by_spark.to_df().toArrow(), schema, even)
    changes = by_spark.changes(0).toArrow().drop_columns(["_change", "_snapshot"])
    check(changes, schema, even)
    with duck.attach(sqlite_lake_args) as reader:
        check(duck.read(reader, "by_spark"), schema, even)
        check(duck.read(reader, "by_arrow"), schema, expected)


def test_statistics_never_hide_a_value_from_duckdb(
    sqlite_lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    """One file for each value: a bound that is off by a little loses it."""
    columns = {f"c{number}": kind for number, kind in enumerate(ATOMIC)}
    table = sqlite_lake.create_table("t", columns)
    kinds = list(ATOMIC.values())
    for n in range(max(map(len, kinds))):
        table.append([{f"c{c}": values[n % len(values)] for c, values in enumerate(kinds)}])
    repeats = max(map(len, kinds))
    with duck.attach(sqlite_lake_args) as reader:
        for c, (kind, values) in enumerate(ATOMIC.items()):
            ordered = [value for value in values if value == value]  # noqa: PLR0124  (not NaN)
            for value in ordered:
                if isinstance(value, str) and "\0" in value:
                    continue  # DuckDB cuts its own question to the catalog off there
                same = [n for n in range(repeats) if values[n % len(values)] == value]
                query = f"SELECT count(*) FROM lake.t WHERE c{c} = ?"
                assert reader.execute(query, [value]).fetchone() == (len(same),), (kind, value)
            if kind not in ("boolean", "string"):
                lowest = reader.execute(f"SELECT min(c{c}) FROM lake.t").fetchone()
                assert lowest == (min(ordered),), kind


FAR = [-(2**62), -62135596800000001, 253402300800000000, 2**62]  # microseconds; years 1 to 9999 not


def test_times_that_python_has_no_date_for_are_kept(
    sqlite_lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    kinds = {"at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "day": pa.date32()}
    days = [FAR[0] // 86_400_000_000, -719163, 2932897, FAR[3] // 86_400_000_000]
    rows = pa.table(
        {
            "n": pa.array(range(4), pa.int32()),
            "at": pa.array(FAR).cast(kinds["at"]),
            "local": pa.array(FAR).cast(kinds["local"]),
            "day": pa.array(days, pa.int32()).cast(kinds["day"]),
        }
    )
    expected = {"at": FAR, "local": FAR, "day": days}
    plain = sqlite_lake.create_table("plain", rows.schema)
    plain.append(rows)
    keyed = sqlite_lake.create_table("keyed", rows.schema, primary_key=["at", "local", "day"])
    keyed.append(plain.to_df())
    keyed.upsert(rows)
    keyed.upsert(rows.slice(1, 2))
    keyed.delete("n = -1")
    for table in (plain, keyed):
        reads = [table.to_arrow(), table.to_df().toArrow()]
        with duck.attach(sqlite_lake_args) as reader:
            reads.append(duck.read(reader, table.name))
        for found in reads:
            ordered = found.sort_by("n")
            for name, wanted in expected.items():
                number = pa.int32() if name == "day" else pa.int64()
                got = ordered.column(name).cast(kinds[name]).cast(number).to_pylist()
                assert got == wanted, (table.name, name)
    with pytest.raises(tailrace.InvalidError, match="exist"):
        keyed.append(rows.slice(0, 1))


@pytest.mark.parametrize("by_spark", [False, True], ids=["driver", "spark"])
def test_every_type_that_can_be_a_key_finds_its_rows(
    sqlite_lake_args: LakeArgs, spark: SparkSession, by_spark: bool
) -> None:
    """All in one table, because a Spark job for each would take a minute."""
    kinds = [kind for kind in ATOMIC if kind not in ("float", "double")]
    if by_spark:
        kinds = ["boolean", "bigint", "string", "binary", "date", "timestamp", "timestamp_ntz"]
        kinds += ["decimal(10,2)", "decimal(38,18)"]
    settings = tailrace.Settings(local_keys=-1) if by_spark else tailrace.Settings()
    with sqlite_lake_args.connect(spark=spark, settings=settings) as lake:
        groups = [kinds] if by_spark else [[kind] for kind in kinds] + [kinds]
        for number, group in enumerate(groups):
            columns = {f"k{k}": kind for k, kind in enumerate(group)}
            table = lake.create_table(f"t{number}", columns | {"v": "int"}, primary_key=columns)
            count = max(len(ATOMIC[kind]) for kind in group)
            rows = [
                {f"k{k}": ATOMIC[kind][n % len(ATOMIC[kind])] for k, kind in enumerate(group)}
                | {"v": n}
                for n in range(count)
            ]
            half = count // 2
            table.append(rows[:half])
            table.upsert(rows)
            with pytest.raises(tailrace.InvalidError, match="exist"):
                table.append(rows[-1:])
            table.delete([rows[0]])
            assert sorted(table.to_arrow().column("v").to_pylist()) == list(range(1, count)), group


# --- names ------------------------------------------------------------------------------------

ODD = [
    "select",
    "with space",
    " leading",
    "dot.ted",
    "a.b.c",
    "back`tick",
    "``",
    'double"quote',
    "single'quote",
    "semi;colon",
    "comma,ed",
    "brackets[0]{1}(2)<3>",
    "slash/back\\slash",
    "per%cent$dollar{x}",
    "star*?",
    "colon:equals=",
    "tab\tnew\nline",
    "..",
    "-dash",
    "#hash",
    "ünïcödé",
    "漢字",
    "🦆",
    "İstanbul",
    "1digit",
    # Names that the store itself uses in between.
    "_file_",
    "_bits",
    "_begin",
    "_old",
    "_new",
    "_row",
    "_other",
    "0",
    "pos",
    "bitmap",
    "file_path",
    "x" * 100,
]


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def test_odd_names_of_columns_and_fields(
    sqlite_lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    inner = ",".join(f"{quote(name)}:int" for name in ODD)
    columns = {"n": "int"} | dict.fromkeys(ODD, "int") | {"st.ruct": f"struct<{inner}>"}
    row: dict[str, Any] = {"n": 1} | {name: c for c, name in enumerate(ODD)}
    row["st.ruct"] = {name: -c for c, name in enumerate(ODD)}
    other = row | {"n": 2, "st.ruct": None}
    table = sqlite_lake.create_table("odd", columns, primary_key=["n", *ODD])
    assert table.primary_key == ["n", *ODD]
    table.append([row])
    table.append(table.to_df().selectExpr("2 AS n", *map(quote, [*ODD, "st.ruct"])).limit(1))
    # What the struct was in the first row it is in the second, until that is replaced.
    table.upsert([other])
    with duck.attach(sqlite_lake_args) as reader:
        reads = [table.to_arrow(), table.to_df().toArrow(), duck.read(reader, "odd")]
    for found in reads:
        assert sorted(found.to_pylist(), key=lambda r: r["n"]) == [row, other]
    check_feeds(sqlite_lake_args, sqlite_lake, row, other)
    table.delete(" AND ".join(f"{quote(name)} = {c}" for c, name in enumerate(ODD)) + " AND n = 2")
    assert table.to_arrow().to_pylist() == [row]


def check_feeds(
    args: LakeArgs, lake: tailrace.Lake, row: dict[str, Any], other: dict[str, Any]
) -> None:
    """The driver's and Spark's, where a row was replaced by another and one by itself."""
    table, newest = lake.table("odd"), lake.snapshot
    table.upsert([row, other | {"st.ruct": row["st.ruct"]}])
    marks = {"_snapshot": newest + 1}
    expected = [
        {"_change": "delete"} | marks | other,
        {"_change": "insert"} | marks | other | {"st.ruct": row["st.ruct"]},
    ]
    spark_only = tailrace.Settings(local_rows=-1, local_keys=-1)
    with args.connect(spark=lake.spark, settings=spark_only) as through_spark:
        for reader in (lake, through_spark):
            feed = reader.table("odd").changes(newest).toArrow().to_pylist()
            assert sorted(feed, key=lambda change: change["_change"]) == expected


def test_odd_names_of_schemas_and_tables(
    sqlite_lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    for number, name in enumerate(ODD):
        sqlite_lake.create_schema(name)
        table = sqlite_lake.create_table(f"{quote(name)}.{quote(name)}", {name: "int"})
        table.append([{name: number}])
    assert len(sqlite_lake.tables()) == len(ODD)
    with duck.attach(sqlite_lake_args) as reader:
        for number, name in enumerate(ODD):
            table = sqlite_lake.table(f"{quote(name)}.{quote(name)}")
            assert table.to_arrow().to_pylist() == [{name: number}]
            assert duck.read_table(reader, name, name).to_pylist() == [{name: number}]
    # A file's place is derived from these names: Spark must find it, too.
    for name in ("dot.ted", "star*?", "slash/back\\slash", "🦆"):
        table = sqlite_lake.table(f"{quote(name)}.{quote(name)}")
        assert table.to_df().toArrow().to_pylist() == [{name: ODD.index(name)}]
        table.delete(f"{quote(name)} >= 0")
        assert table.to_arrow().num_rows == 0


def test_columns_come_go_and_change_their_names_to_odd_ones(
    sqlite_lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    table = sqlite_lake.create_table("t", {"n": "int", "a": "int", "b.c": "struct<d:int>"})
    table.append([{"n": 1, "a": 10, "b.c": {"d": 100}}])
    before = sqlite_lake.snapshot
    # Names change places, and one that was given up is given again.
    table.rename_column("a", "tmp")
    table.rename_column("b.c", "a")
    table.rename_column("tmp", "b.c")
    table.add_column("b", "struct<c:int>")
    table.append([{"n": 2, "b.c": 20, "a": {"d": 200}, "b": {"c": 2000}}])
    table.drop_column("b.c")
    table.add_column("b.c", "string")
    table.append([{"n": 3, "a": None, "b": None, "b.c": "new"}])
    now = [
        {"n": 1, "a": {"d": 100}, "b": None, "b.c": None},
        {"n": 2, "a": {"d": 200}, "b": {"c": 2000}, "b.c": None},
        {"n": 3, "a": None, "b": None, "b.c": "new"},
    ]
    then = [{"n": 1, "a": 10, "b.c": {"d": 100}}]
    with duck.attach(sqlite_lake_args) as reader:
        for at, rows in ((None, now), (before, then)):
            reads = [table.to_arrow(at), table.to_df(at).toArrow(), duck.read(reader, "t", at)]
            for found in reads:
                assert sorted(found.to_pylist(), key=lambda r: r["n"]) == rows


def test_names_differ_by_more_than_case(lake: tailrace.Lake) -> None:
    lake.create_schema("Schema")
    table = lake.create_table("SCHEMA.Table", {"Ä": "int", "b": "int"}, primary_key="ä")
    table.append([{"ä": 1, "B": 2}])
    lake.table("schema.TABLE").upsert([{"Ä": 1, "b": 3}])
    assert table.to_arrow().to_pylist() == [{"Ä": 1, "b": 3}]
    for again in ("Schema.table", "sCHEMA.TABLE"):
        with pytest.raises(tailrace.InvalidError, match="exists"):
            lake.create_table(again, {"x": "int"})
    with pytest.raises(tailrace.InvalidError, match="exists"):
        lake.create_schema("SCHEMA")
    for twice in ("B", "ä"):
        with pytest.raises(tailrace.InvalidError, match=repr(twice)):
            table.add_column(twice, "int")
    table.rename_column("b", "B")
    assert list(table.columns) == ["Ä", "B"]


def test_tables_whose_names_differ_by_an_accented_letter_are_two(lake: tailrace.Lake) -> None:
    """As in DuckDB: only A to Z have a case here. Inside a transaction, too."""
    with lake.transaction() as txn:
        txn.create_table("ä", {"n": "int"}).append([{"n": 1}])
        txn.create_table("Ä", {"n": "int"}).append([{"n": 2}])
    with lake.transaction() as txn:
        txn.table("ä").append([{"n": 10}])
        txn.table("Ä").append([{"n": 20}])
    assert sorted(lake.table("ä").to_arrow().column("n").to_pylist()) == [1, 10]
    assert sorted(lake.table("Ä").to_arrow().column("n").to_pylist()) == [2, 20]


def test_a_column_is_not_taken_for_a_field_of_the_same_path(
    sqlite_lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    """In Parquet both are `b.c`, and what is known of one must not be said of the other."""
    columns = {"b.c": "int", "b": "struct<c:int>"}
    table = sqlite_lake.create_table("t", columns, primary_key="b.c")
    for number in (1, 2, 3):
        table.append([{"b.c": number, "b": {"c": 100 * number}}])
    table.upsert([{"b.c": 2, "b": {"c": 0}}])
    with pytest.raises(tailrace.InvalidError, match="exist"):
        table.append([{"b.c": 3, "b": None}])
    table.delete([{"b.c": 1}])
    expected = [{"b.c": 2, "b": {"c": 0}}, {"b.c": 3, "b": {"c": 300}}]
    assert table.to_arrow().sort_by("b").to_pylist() == expected
    with duck.attach(sqlite_lake_args) as reader:
        for row in expected:
            query = 'SELECT * FROM lake.t WHERE "b.c" = ?'
            assert reader.execute(query, [row["b.c"]]).to_arrow_table().to_pylist() == [row]


def test_a_widened_column_holds_old_and_new_values(
    sqlite_lake: tailrace.Lake, sqlite_lake_args: LakeArgs
) -> None:
    steps = [
        ("tinyint", 127, "smallint", 2**15 - 1),
        ("smallint", -(2**15), "int", 2**31 - 1),
        ("tinyint", -128, "bigint", 2**63 - 1),
        ("int", 2**31 - 1, "bigint", -(2**63)),
        ("float", 1.5, "double", 0.1),
        ("decimal(4,2)", Decimal("99.99"), "decimal(9,2)", Decimal("9999999.99")),
        ("decimal(9,2)", Decimal("-0.01"), "decimal(18,2)", Decimal("9999999999999999.99")),
        ("decimal(18,2)", Decimal("0.00"), "decimal(38,2)", Decimal("1e35") + Decimal("0.01")),
    ]
    columns = {f"c{number}": old for number, (old, *_) in enumerate(steps)}
    table = sqlite_lake.create_table("t", columns)
    table.append([{f"c{number}": value for number, (_, value, _, _) in enumerate(steps)}])
    before = sqlite_lake.snapshot
    for number, (_, _, kind, _) in enumerate(steps):
        table.widen_column(f"c{number}", kind)
    table.append([{f"c{number}": value for number, (*_, value) in enumerate(steps)}])
    then = [tuple(value for _, value, _, _ in steps)]
    now = [*then, tuple(value for *_, value in steps)]
    with duck.attach(sqlite_lake_args) as reader:
        for at, rows in ((before, then), (None, now)):
            reads = [table.to_arrow(at), table.to_df(at).toArrow(), duck.read(reader, "t", at)]
            for found in reads:
                got = {tuple(row.values()) for row in found.to_pylist()}
                assert got == set(rows)


def test_a_time_with_another_zone_is_the_same_moment(sqlite_lake: tailrace.Lake) -> None:
    from zoneinfo import ZoneInfo

    table = sqlite_lake.create_table("t", {"n": "int", "at": "timestamp"})
    moment = aware(2024, 7, 1, 10)
    table.append([{"n": 1, "at": moment.astimezone(ZoneInfo("Asia/Tokyo"))}])
    zoned = pa.array([moment], pa.timestamp("ms", "America/New_York"))
    table.append(pa.table({"n": [2], "at": zoned}))
    assert table.to_arrow().column("at").to_pylist() == [moment, moment]
    assert table.to_arrow().column("at").to_pylist()[0].utcoffset() == timedelta(0)
