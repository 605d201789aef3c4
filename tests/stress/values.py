"""What the fuzz hands to public calls: values that may fit a parameter of that name, and others."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

TABLES = ["t", "plain", "docs", "main.t", "v", "w", "s.odd", "`a.b`.`c``d`", "missing", "no.where"]
COLUMNS = ["id", "n", "word", "price", "ID", "nothing", "emb", "note", "new"]
JOBS = ["copy", "fuzzed", "words", "near", "view", "missing"]
TYPES = [
    "bigint",
    "int",
    "string",
    "decimal(5,2)",
    "array<float>",
    "struct<a:int>",
    "date not null",
]
CONDITIONS = [
    "id = 1",
    "id > 1 AND word = 'x'",
    "word LIKE 'a%' OR n IS NULL",
    "nothing = 1",
    "id = = 1",
    "id IN (SELECT id FROM plain)",
    "true",
]
QUERIES = [
    "SELECT id, n FROM t",
    "SELECT n, count(*) AS c FROM t GROUP BY n",
    "SELECT t.id FROM t JOIN plain ON t.id = plain.id",
    "SELECT * FROM missing",
    "SELECT id FROM t VERSION AS OF 1",
    "SELEC id",
    "SELECT 1 +",
]
STATEMENTS = [
    *QUERIES[3:],
    "SHOW TABLES",
    "SHOW JOBS",
    "SHOW INDEXES; SHOW VIEWS",
    "DESCRIBE t",
    "CREATE TABLE made (id INT, PRIMARY KEY (id))",
    "CREATE SCHEMA made",
    "DROP TABLE IF EXISTS made",
    "ALTER TABLE plain ADD COLUMN more INT",
    "CREATE INDEX x ON docs USING FULLTEXT (note)",
    "DROP TABLE",
    "EXPLAIN SELECT id FROM t",
    "INSERT INTO plain VALUES (7)",
    "SELECT id FROM t WHERE id = :id",
    "DELETE FROM t WHERE id = :id",
    "REFRESH MATERIALIZED VIEW v",
    "SELECT * FROM fulltext_search('words', 'late')",
]
SEARCHES = [
    "late",
    "late delivery",
    "+late -gift",
    '"late delivery"~2',
    "deliv*",
    "delivry~1",
    "(",
    "",
]
SPECS: list[Any] = [
    {"consumer": {"kind": "replica", "table": "made_copy"}},
    {"consumer": {"kind": "fuzzed"}, "priority": 3},
    {"consumer": {"kind": "unknown"}, "trigger": {"job_type": "greedy"}},
    {"consumer": {"kind": "replica", "table": "t"}, "sources": ["plain", "t"]},
    {"trigger": {"job_type": "periodic", "schedule": {"interval": "1h"}}},
    {"timeout": "10m"},
    {},
]
ROWS: list[Any] = [
    [{"id": 5, "n": 1, "word": "five", "price": Decimal("1.50")}],
    [{"id": 1, "n": None, "word": None, "price": None}],
    [{"id": 2}],
    [],
    pa.table({"id": [9]}),
    pd.DataFrame({"id": [8]}),
    [{"id": 2**63, "n": 1, "word": "x", "price": None}],
    [{"id": 6, "n": 1, "word": "\ud800", "price": Decimal(1)}],
]

# By what parameters are called.
FITTING: dict[str, list[Any]] = {
    "name": [*TABLES, "s", "new_one", "s.new_one"],
    "Table.name": COLUMNS,
    "Table.kind": TYPES,
    "Jobs.name": JOBS,
    "Lake.index.name": JOBS,
    "Lake.create_index.name": ["fresh", "words", "other"],
    "Lake.create_index.columns": [["note"], "note", ["emb"], ["word"]],
    "Lake.drop_index.name": JOBS,
    "Lake.find_index.name": [*JOBS, "main.docs.words"],
    "Lake.create_table.columns": [{"id": "bigint", "word": "string not null"}, {"id": "int"}],
    "Lake.create_table.primary_key": ["id", ["id"], None],
    "Lake.search.text": SEARCHES,
    "Lake.search.table": ["docs"],
    "Lake.search.columns": [["note"], None],
    "Lake.sql.text": STATEMENTS,
    "Index.query": [*SEARCHES, [0.1, 0.2, 0.3]],
    "Index.columns": [["note"], ["id", "emb"], None],
    "Transaction.places": [{}, {1: np.array([0])}],
    "Transaction.schema": ["main", "s"],
    "table": TABLES,
    "tenant": ["default", "acme"],
    "column": COLUMNS,
    "old": COLUMNS,
    "new": COLUMNS,
    "columns": [
        {"id": "bigint", "word": "string not null"},
        ["id"],
        ["note"],
        "note",
        ["emb"],
        pa.schema([("id", pa.int64())]),
        {"id": "int"},
        None,
    ],
    "primary_key": ["id", ["id"], ["id", "word"], None],
    "kind": TYPES,
    "what": [*CONDITIONS, [{"id": 1}], pa.table({"id": [1]})],
    "where": [*CONDITIONS, None],
    "query": QUERIES,
    "sql": QUERIES,
    "text": [*STATEMENTS, *SEARCHES, None],
    "vector": [[0.1, 0.2, 0.3], [1.0], None],
    "args": [{}, {"id": 1}, None],
    "spec": SPECS,
    "rows": ROWS,
    "using": ["fulltext", "vector"],
    "options": [{}, {"dimension": 3}, {"tokenizer": "simple"}, {"metric": "l2"}, None],
    "trigger": [
        "default",
        "greedy",
        {"job_type": "periodic", "schedule": {"interval": "1h"}},
        None,
    ],
    "policy": ["auto", "full", "incremental"],
    "freshness": ["indexed", "latest"],
    "state": ["completed", "paused", "error", None],
    "priority": [0, 5, -5],
    "limit": [1, 3, 10],
    "timeout": [5, 0, 0.5, timedelta(seconds=5)],
    "at": [None, 1, 2, 3, 10, 1000],
    "since": [0, 1, 2, date(2026, 1, 1), None],
    "until": [2, 3, None],
    "snapshot": [None, 1, 2, 1000],
    "port": [0],
    "metrics_port": [None, 0],
    "host": ["127.0.0.1"],
    "workers": [1, 2],
    "txn": [None],
    "files": ["rows.csv", ["rows.csv"], "nothing.csv", "*.csv", "s3:", "file:///nowhere"],
    "lake": ["beside", "postgresql://u:pw@127.0.0.1:1/db", "postgresql://127.0.0.1:1/db?bogus=1"],
    "data": ["objects", "s3://bucket/prefix", "ftp://x/y", None],
    "storage_options": [{"region": "x"}, {}, None],
    "format": ["csv", "json", None],
    "spark": [None],
    "settings": [None],
    "clock": [None],
    "on_step": [None],
    "progress": [None],
    "change": ["insert", "delete"],
}


class _Sulky:
    """Has no text, and is equal to nothing that it could be compared with."""

    def __repr__(self) -> str:
        raise ValueError("not shown")

    def __eq__(self, other: object) -> bool:
        raise ValueError("not compared")

    __hash__ = object.__hash__


def _nested(depth: int, make: Any) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = make(value)
    return value


ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**30,
    10**400,
    1.5,
    math.nan,
    math.inf,
    -math.inf,
    1e300,
    "",
    " ",
    "x",
    "x" * 256,
    "x" * 200_000,
    "x" * 1_100_000,
    "\ud800",
    "t\udfff",
    "a\0b",
    "'; DROP TABLE t; --",
    "it's",
    'say "hello"',
    "`",
    "a.b.c.d",
    ".",
    "tailrace",
    "_tailrace_x",
    "_pos",
    "ünïcode",
    "日本",
    "\u202e\u200b",
    "{t}",
    "%s :id $1 ?",
    "(" * 500,
    "(" * 40 + "1" + ")" * 40,
    "struct(" * 20 + "1" + ")" * 20,
    "array<" * 200 + "int" + ">" * 200,
    "SELECT * FROM t" + " JOIN t" * 30,
    "NOT " * 2_000 + "true",
    "id" + " + id" * 3_000,
    "/* never ends",
    "-- nothing",
    ";",
    "insert",
    b"bytes",
    bytearray(b"x"),
    [],
    [None],
    [1, "a"],
    ["id", "id"],
    (),
    {},
    {1: 2},
    {"id": None},
    {"kind": object()},
    {"consumer": {"kind": "replica", "table": 5}},
    {"consumer": {"kind": "x" * 300}},
    set(),
    {1, 2},
    frozenset({"id"}),
    range(3),
    _nested(300, lambda value: [value]),
    _nested(2_000, lambda value: {"a": value}),
    _nested(40, lambda value: {"consumer": value}),
    _nested(60, lambda kind: pa.list_(kind if isinstance(kind, pa.DataType) else pa.int8())),
    object(),
    object,
    _Sulky(),
    [_Sulky()],
    {"consumer": _Sulky()},
    len,
    Decimal("NaN"),
    Decimal("1e400"),
    1j,
    date.min,
    datetime.max.replace(tzinfo=UTC),
    datetime.min,  # noqa: DTZ901  (without a zone is the point)
    timedelta(-1),
    timedelta.max,
    np.int64(1),
    np.int64(-1),
    np.float32("nan"),
    np.array([1.0, 2.0]),
    np.array([]),
    np.array(["id"]),
    np.str_("id"),
    pd.DataFrame({"id": [1, 1]}),
    pd.DataFrame(),
    pd.Series([1]),
    pd.NaT,
    pa.table({}),
    pa.table({"id": [1.5]}),
    pa.schema([]),
    pa.schema([("a", pa.list_(pa.null()))]),
    pa.array([1]),
    pa.int64(),
    Path("x"),
    Path("a\0b"),
    Path("x" * 300),
    ValueError("x"),
]


def fitting(random: Random, label: str, name: str) -> Any:
    """A value that may fit a parameter of `Class.method`; None if nothing is known of it."""
    for key in (f"{label}.{name}", f"{label.partition('.')[0]}.{name}", name):
        if key in FITTING:
            return random.choice(FITTING[key])
    return None


# What of a parameter that holds other values is odd inside.
INSIDE: dict[str, list[Callable[[Any], Any]]] = {
    "args": [lambda value: {"id": value}],
    "options": [
        lambda value: {"dimension": value},
        lambda value: {"recall": value},
        lambda value: {"weights": value},
        lambda value: {"weights": {"note": value}},
        lambda value: {"tokenizer": value},
        lambda value: {"positions": value},
    ],
    "rows": [
        lambda value: [{"id": value}],
        lambda value: [{"id": 77, "n": 1, "word": value, "price": None}],
        lambda value: [{"id": 78, "n": value, "word": "x", "price": value}],
    ],
    "what": [lambda value: [{"id": value}]],
    "spec": [
        lambda value: {"consumer": {"kind": "replica", "table": value}},
        lambda value: {"consumer": {"kind": "replica", "table": "c", "where": value}},
        lambda value: {"consumer": {"kind": "replica", "table": "c", "columns": value}},
        lambda value: {"consumer": {"kind": value}},
        lambda value: {"consumer": {"kind": "fuzzed"}, "sources": value},
        lambda value: {"consumer": {"kind": "fuzzed"}, "timeout": value},
    ],
    "columns": [lambda value: {"c": value}, lambda value: [value], lambda value: {value: "int"}],
    "primary_key": [lambda value: [value]],
    "vector": [lambda value: [value, 1.0, 1.0]],
    "query": [lambda value: [value, 1.0, 1.0]],
    "trigger": [
        lambda value: {"job_type": value},
        lambda value: {"job_type": "periodic", "schedule": {"interval": value}},
    ],
    "storage_options": [lambda value: {"region": value}],
    "places": [lambda value: {1: value}],
    "files": [lambda value: [value]],
}


def odd(random: Random, name: str, extra: list[Any]) -> Any:
    """A value for a parameter of any name; `extra` are of the lake that is fuzzed."""
    if random.random() < 0.2:
        return random.choice(FITTING[random.choice(sorted(FITTING))])
    value = random.choice([*ODD, *extra])
    if name in INSIDE and random.random() < 0.6:
        try:
            return random.choice(INSIDE[name])(value)
        except TypeError:  # what no dict has for a key
            return value
    return value
