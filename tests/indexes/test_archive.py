"""A segment's files go into one object and come out of it, or are called damaged."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import tailrace
from tailrace.indexes.archive import fetch_archive, write_archive
from tailrace.objects import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    (tmp_path / "lake").mkdir()
    return Storage(f"{tmp_path / 'lake'}/")


def test_files_come_out_as_they_went_in(storage: Storage, tmp_path: Path) -> None:
    files = {"a.bin": bytes(range(256)) * 5000, "empty": b""}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    size, checksum = write_archive(storage, "one.segment", [tmp_path / name for name in files])
    stored = (tmp_path / "lake" / "one.segment").read_bytes()
    assert (size, checksum) == (len(stored), hashlib.sha256(stored).hexdigest())
    target = tmp_path / "out"
    target.mkdir()
    fetch_archive(storage, "one.segment", checksum, target)
    assert {file.name: file.read_bytes() for file in target.iterdir()} == files


def test_the_same_files_make_the_same_object(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    first, second = (write_archive(storage, name, [tmp_path / "a"]) for name in ("1", "2"))
    assert first == second


def test_a_damaged_object_is_not_unpacked(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1000)
    _, checksum = write_archive(storage, "one.segment", [tmp_path / "a"])
    stored = tmp_path / "lake" / "one.segment"
    stored.write_bytes(stored.read_bytes().replace(b"x", b"y", 1))
    target = tmp_path / "out"
    target.mkdir()
    with pytest.raises(tailrace.CorruptError, match=r"one\.segment is damaged"):
        fetch_archive(storage, "one.segment", checksum, target)
    assert not (target / "a").exists()
