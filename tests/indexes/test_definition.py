"""Definitions of indexes: checked against the table, stored in a job's spec, read back."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

import tailrace
from tailrace.indexes.definition import KINDS, Definition, NewIndex, define
from tailrace.indexes.text.kind import TextOptions
from tailrace.indexes.vectors.kind import VectorOptions
from tailrace.spark_sql.types import list_of
from tailrace.store.schema import Column, TableInfo


def column(number: int, name: str, kind: pa.DataType, dimension: int | None = None) -> Column:
    return Column(id=number, name=name, physical=name, type=kind, dimension=dimension)


TABLE = TableInfo(
    id=1, uuid="", schema_id=1, schema="main", name="review", path="", key=(1,),
    columns=(
        column(1, "id", pa.int32()),
        column(2, "title", pa.string()),
        column(3, "note", pa.string()),
        column(4, "v", list_of(pa.float32())),
        column(5, "indexed", list_of(pa.float64()), dimension=2),
    ),
)  # fmt: skip


def defined(using: object, columns: object, **options: Any) -> Definition:
    new = NewIndex(table="review", name="x", using=using, columns=columns, options=options)
    return define(TABLE, new)


def test_full_text_with_its_defaults() -> None:
    made = defined("FullText", "note")
    assert made == Definition(using="fulltext", columns=(3,), options=TextOptions(weights=(1.0,)))


def test_vectors_with_their_defaults() -> None:
    assert defined("vector", ["v"]).options == VectorOptions()
    assert defined("vector", ["indexed"]).options == VectorOptions(dimension=2)


@pytest.mark.parametrize(
    ("weights", "stored"),
    [
        (None, (1.0, 1.0)),
        ([3, 1], (3.0, 1.0)),
        ("3, 1.5", (3.0, 1.5)),
        ({"NOTE": 2}, (1.0, 2.0)),
    ],
)
def test_weights_in_every_spelling(weights: object, stored: tuple[float, ...]) -> None:
    assert defined("fulltext", ["title", "note"], weights=weights).options.weights == stored


@pytest.mark.parametrize(
    ("given", "metric"),
    [("IP", "inner_product"), ("dot", "inner_product"), ("L2", "l2"), ("Cosine", "cosine")],
)
def test_metrics_in_every_spelling(given: str, metric: str) -> None:
    assert defined("vector", "v", metric=given).options.metric == metric


def test_options_come_as_sql_gives_them() -> None:
    made = defined("vector", "v", DIMENSION="128", recall="0.9").options
    assert made == VectorOptions(dimension=128, recall=0.9)
    assert defined("fulltext", "note", positions="FALSE").options.positions is False


@pytest.mark.parametrize(
    ("using", "columns", "options", "message"),
    [
        ("btree", ["note"], {}, "using='fulltext' or 'vector', not 'btree'"),
        (3, ["note"], {}, "not 3"),
        ("fulltext", [], {}, "needs columns"),
        ("fulltext", None, {}, "needs columns"),
        ("fulltext", ["id"], {}, "main.review.id is int: a full-text index needs strings"),
        ("fulltext", ["note", "NOTE"], {}, "twice"),
        ("fulltext", ["note"], {"language": "elvish"}, "language is one of"),
        ("fulltext", ["note"], {"tokenizer": "ngram", "language": "english"}, "has no language"),
        ("fulltext", ["note"], {"tokenizer": 5}, "tokenizer is one of"),
        ("fulltext", ["note"], {"positions": 1}, "true or false"),
        ("fulltext", ["note"], {"weights": [0]}, "above 0"),
        ("fulltext", ["note"], {"weights": [1, 2]}, "one number a column"),
        ("fulltext", ["note"], {"weights": ["x"]}, "a weight is a number"),
        ("fulltext", ["note"], {"weights": {"title": 2}}, "'title'"),
        ("fulltext", ["note"], {"metric": "l2"}, "a fulltext index has no option 'metric'"),
        ("vector", ["note"], {}, "needs array<float>"),
        ("vector", ["v", "indexed"], {}, "of one column"),
        ("vector", ["v"], {"metric": "far"}, "metric is one of"),
        ("vector", ["v"], {"recall": 2}, "between 0.5 and 1"),
        ("vector", ["v"], {"recall": True}, "recall is a number"),
        ("vector", ["v"], {"dimension": 2.5}, "a whole number"),
        ("vector", ["v"], {"dimension": "inf"}, "a dimension is"),
        ("vector", ["indexed"], {"dimension": 3}, "another index, of dimension 2"),
    ],
)
def test_what_is_wrong_is_named(
    using: object, columns: object, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(tailrace.InvalidError, match=message):
        defined(using, columns, **options)


@pytest.mark.parametrize(
    ("definition", "spec"),
    [
        (
            defined("fulltext", ["title", "note"], weights=[2, 1], tokenizer="ngram"),
            {
                "kind": "fulltext", "column_ids": [2, 3], "tokenizer": "ngram",
                "language": "english", "weights": [2.0, 1.0], "positions": True,
            },
        ),
        (
            defined("vector", "v", dimension=3),
            {
                "kind": "vector", "column_ids": [4], "metric": "cosine", "dimension": 3,
                "recall": 0.95,
            },
        ),
    ],
)  # fmt: skip
def test_specs_keep_what_lakes_have_stored(definition: Definition, spec: dict[str, Any]) -> None:
    assert definition.to_spec() == spec
    assert Definition.from_spec(spec) == definition


def test_definitions_are_keys_and_travel_to_workers() -> None:
    made = defined("fulltext", "note")
    assert pickle.loads(pickle.dumps(made)) in {made}


def test_a_dropped_column_is_an_error() -> None:
    made = defined("fulltext", "note")
    with pytest.raises(tailrace.InvalidError, match="no longer has a column of this index"):
        made.columns_of(TABLE.narrowed(["title"]))


def test_every_kind_is_found_by_its_name() -> None:
    assert {name: kind.name for name, kind in KINDS.items()} == dict(zip(KINDS, KINDS, strict=True))
    assert KINDS["fulltext"].option_names == ("tokenizer", "language", "weights", "positions")
    assert KINDS["vector"].option_names == ("metric", "dimension", "recall")
