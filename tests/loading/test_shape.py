"""A look at a file tells its columns, their types, and whether it can be cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tailrace.errors import InvalidError
from tailrace.loading.options import Options
from tailrace.loading.shape import SAMPLE_BYTES, Shape, look_at, sample_bytes
from tests.support.loading import a_file


def look(
    path: Path, data: bytes, options: Options | None = None, names: tuple[str, ...] | None = None
) -> Shape:
    path.write_bytes(data)
    file = replace(a_file(path.name, size=len(data)), location=str(path))
    return look_at(file, options or Options(), size=1000, names=names)


def test_csv_names_its_columns_or_takes_the_names_given(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    assert look(path, b"id,x\n1,a\n").columns == {"id": pa.int64(), "x": pa.string()}
    bare = Options(header=False)
    assert look(path, b"1,\n", bare, ("id", "x")).columns == {"id": pa.int64(), "x": pa.null()}
    with pytest.raises(InvalidError, match=r"2 fields in its first line.*names are known: id;"):
        look(path, b"1,2\n", bare, ("id",))


def test_a_file_with_line_ends_inside_quotes_is_not_cut(tmp_path: Path) -> None:
    assert look(tmp_path / "a.csv", b"id\n1\n").divisible
    assert not look(tmp_path / "a.csv", b'id\n"1\n2"\n').divisible
    assert look(tmp_path / "a.jsonl", b'{"id": 1}\n').divisible


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"id,ID\n", "two columns called 'ID'"),
        (b"id, \n", "column 2 has no name"),
        (b"caf\xe9\n", "is not UTF-8"),
    ],
)
def test_a_header_that_cannot_be_used_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        look(tmp_path / "a.csv", data)


def test_json_has_the_keys_of_its_rows_as_first_spelled(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    data = b'{"Id": 1}\n[1]\n{"id": "x", "y": 1.5}\n'
    assert look(path, data).columns == {"Id": pa.int64(), "y": pa.float64()}
    with pytest.raises(InvalidError, match="is one JSON array"):
        look(path, b'\n [{"id": 1}]')


def test_an_empty_file_has_no_columns(tmp_path: Path) -> None:
    assert look(tmp_path / "a.csv", b"\n").columns == {}


def test_many_files_are_looked_at_less() -> None:
    assert sample_bytes(1) == SAMPLE_BYTES
    assert sample_bytes(1000) < sample_bytes(100) < SAMPLE_BYTES
    assert sample_bytes(10**9) > 0
