"""A file's columns are matched with the table's before any row is read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace.errors import InvalidError
from tailrace.loading.layout import Layout, lay_out
from tailrace.loading.options import OnError, Options
from tailrace.loading.shape import Shape
from tests.support.loading import a_file, a_table

TABLE = a_table(id="bigint", name="string", tags="array<string>", required=("id",))


def layout(file: str, options: Options | None = None, **columns: pa.DataType) -> Layout:
    shape = Shape(columns=columns, divisible=True)
    return lay_out(a_file(file), shape, TABLE, options or Options())


def test_columns_match_by_name_whatever_the_case_and_order() -> None:
    found = layout("a.csv", NAME=pa.string(), Id=pa.int64())
    assert found.filling.sources == (1, 0, None)
    assert found.width == 2
    assert found.dialect is not None


def test_json_looks_for_every_column_as_the_file_spells_it() -> None:
    found = layout("a.jsonl", Name=pa.string())
    assert [(field.key, field.column) for field in found.json] == [
        ("id", "id"),
        ("Name", "name"),
        ("tags", "tags"),
    ]
    assert found.filling.sources == (0, 1, 2)


def test_an_unknown_key_of_json_rejects_its_rows_unless_the_load_aborts() -> None:
    with pytest.raises(InvalidError, match=r"which main\.t does not have; did you mean 'name'"):
        layout("a.jsonl", nmae=pa.string())
    assert layout("a.jsonl", Options(on_error=OnError.SKIP), nmae=pa.string()).json


def test_a_file_without_columns_is_empty_and_fine() -> None:
    assert layout("a.csv").filling.sources == (None, None, None)


@pytest.mark.parametrize(
    ("file", "columns", "message"),
    [
        ("a.csv", {"id": pa.int64(), "zzz": pa.null()}, "does not have; it has id, name, tags"),
        ("a.csv", {"name": pa.string()}, "no column 'id', which must not be NULL"),
        ("a.csv", {"id": pa.int64(), "tags": pa.string()}, "can't be read from CSV; use Parquet"),
        ("a.parquet", {"id": pa.string()}, "column 'id' is string, but main.t.id is bigint"),
    ],
)
def test_what_cannot_be_filled_is_refused_by_name(
    file: str, columns: dict[str, pa.DataType], message: str
) -> None:
    with pytest.raises(InvalidError, match=message):
        layout(file, **columns)
