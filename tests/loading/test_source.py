"""Files are found by path and pattern, and opened decompressed."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from tailrace.errors import InvalidError, NotFoundError
from tailrace.loading.options import Format
from tailrace.loading.source import InputFile, find_files
from tailrace.objects import Storage


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def find(*names: str, wanted: Format | None = None) -> tuple[InputFile, ...]:
    return find_files(names, Storage(str(Path.cwd()), {}), wanted)


@pytest.mark.parametrize(
    ("name", "kind", "codec", "has_tabs"),
    [
        ("a.csv", Format.CSV, None, False),
        ("a.tsv.gz", Format.CSV, "gzip", True),
        ("a.ndjson.bz2", Format.JSON, "bz2", False),
        ("a.JSON", Format.JSON, None, False),
        ("a.pq", Format.PARQUET, None, False),
    ],
)
def test_the_name_says_the_format_and_the_compression(
    here: Path, name: str, kind: Format, codec: str | None, has_tabs: bool
) -> None:
    Path(name).touch()
    (file,) = find(name)
    assert (file.format, file.codec, file.has_tabs, file.name) == (kind, codec, has_tabs, name)
    assert file.location == str(here / name)


@pytest.mark.parametrize("name", ["a.txt", "a", "a.gz"])
def test_another_name_needs_a_format(here: Path, name: str) -> None:
    Path(name).touch()
    with pytest.raises(InvalidError, match="csv, json, parquet"):
        find(name)
    assert find(name, wanted=Format.JSON)[0].format is Format.JSON


def test_a_pattern_stands_for_files_in_order(here: Path) -> None:
    Path("deep").mkdir()
    for name in ("b.csv", "a.csv", "deep/c.csv", "d[1].csv"):
        Path(name).touch()
    assert [file.name for file in find("?.csv")] == ["a.csv", "b.csv"]
    assert len(find("**/*.csv")) == 4
    assert find("d[1].csv")[0].name == "d[1].csv"  # a file of just that name comes first
    with pytest.raises(NotFoundError, match="there is no file x"):
        find("x*.csv")
    with pytest.raises(InvalidError, match="named twice"):
        find("a.csv", "./a.csv")
    with pytest.raises(InvalidError, match="is a directory"):
        find("deep")
    with pytest.raises(InvalidError, match="name at least one file"):
        find()


@pytest.mark.parametrize(("name", "library"), [("a.csv.gz", gzip), ("a.csv.bz2", bz2)])
def test_text_is_decompressed(here: Path, name: str, library: ModuleType) -> None:
    Path(name).write_bytes(library.compress(b"id\n1\n"))
    with find(name)[0].open_text() as text:
        assert text.read() == b"id\n1\n"


def test_zstandard_is_decompressed_and_parquet_is_not(here: Path) -> None:
    with pa.CompressedOutputStream("a.csv.zst", "zstd") as out:
        out.write(b"id\n1\n")
    with find("a.csv.zst")[0].open_text() as text:
        assert text.read() == b"id\n1\n"
    Path("a.parquet.gz").touch()
    with pytest.raises(InvalidError, match="compressed inside, not as a whole"):
        find("a.parquet.gz")


def test_a_file_that_is_gone_is_said_to_be(here: Path) -> None:
    Path("a.csv").touch()
    (file,) = find("a.csv")
    Path("a.csv").unlink()
    with pytest.raises(NotFoundError, match="it was deleted, or Spark's workers"), file.open():
        pass
