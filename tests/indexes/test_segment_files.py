"""A segment's files go into one object and come out of it, or are called damaged; the local cache
keeps and evicts them, and is never in the way of a search.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tailrace
from tailrace.indexes.segment_files import SegmentCache, fetch_archive, write_archive
from tailrace.objects import Storage
from tests.indexes.model import keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs


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


def make_packs(tmp_path: Path, count: int, size: int) -> tuple[Storage, list[tuple[str, str]]]:
    storage = Storage(f"{tmp_path}/objects/")
    packs = []
    for number in range(count):
        file = tmp_path / f"content{number}"
        file.write_bytes(bytes([number]) * size)
        path = f"t/{number}.segment"
        packs.append((path, write_archive(storage, path, [file])[1]))
    return storage, packs


def entries(cache: SegmentCache) -> set[str]:
    return {place.name for place in (cache.directory / "segments").iterdir()}


def content(directory: Path) -> bytes:
    (file,) = directory.iterdir()
    return file.read_bytes()


def test_the_least_used_entries_go_first(tmp_path: Path) -> None:
    storage, packs = make_packs(tmp_path, 4, 1000)
    cache = SegmentCache(tmp_path / "cache", limit=2500)
    for path, checksum in (packs[0], packs[1], packs[0], packs[2]):
        assert len(cache.use(storage, path, checksum, content)) == 1000
    assert entries(cache) == {packs[0][1], packs[2][1]}
    assert list((cache.directory / "open").glob("*/*")) == []


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    storage, packs = make_packs(tmp_path, 3, 1000)
    cache = SegmentCache(tmp_path / "cache", limit=1500)

    def others(directory: Path) -> bytes:
        for path, checksum in packs[1:]:
            cache.use(storage, path, checksum, content)
        return content(directory)

    assert cache.use(storage, *packs[0], others) == bytes([0]) * 1000
    assert packs[0][1] in entries(cache)


def test_an_entry_that_another_process_evicts_is_fetched_again(tmp_path: Path) -> None:
    import shutil

    storage, packs = make_packs(tmp_path, 1, 10)
    cache = SegmentCache(tmp_path / "cache", limit=10**6)
    tries = []

    def evicted_once(directory: Path) -> bytes:
        if not tries:
            tries.append(1)
            shutil.rmtree(directory)
        return next(directory.iterdir()).read_bytes() if directory.is_dir() else _missing()

    def _missing() -> bytes:
        raise FileNotFoundError

    assert cache.use(storage, *packs[0], evicted_once) == bytes([0]) * 10


def test_several_threads_fetch_the_same(tmp_path: Path) -> None:
    storage, packs = make_packs(tmp_path, 1, 100_000)
    caches = [SegmentCache(tmp_path / "cache", limit=10**6) for _ in range(8)]
    found: list[bytes] = []
    threads = [
        threading.Thread(target=lambda c=c: found.append(c.use(storage, *packs[0], content)))
        for c in caches
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [bytes([0]) * 100_000] * 8


def test_a_damaged_segment_is_refused_and_can_be_built_anew(
    sqlite_lake_args: LakeArgs, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "cache"))
    with sqlite_lake_args.connect(spark=spark) as lake:
        table = lake.create_table("doc", {"id": "int", "text": "string"}, primary_key="id")
        table.append([{"id": 1, "text": "hello there"}])
        index = lake.create_index("doc", "words", using="fulltext", columns="text")
        index.wait()
        (path,) = sqlite_lake_args.data_directory.rglob("*.segment")
        damaged = bytearray(path.read_bytes())
        damaged[600] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(tailrace.CorruptError, match=r"checksum.*index.rebuild"):
            index.search("hello")
        index.rebuild()
        assert keys(index.search("hello")) == [1]
        path.unlink()
    with sqlite_lake_args.connect(spark=spark) as lake:  # nothing asks for the old one any more
        assert keys(lake.index("doc", "words").search("hello")) == [1]


def test_searches_go_on_when_everything_is_evicted(
    sqlite_lake_args: LakeArgs, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import shutil

    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "cache"))
    with sqlite_lake_args.connect(spark=spark) as lake:
        table = lake.create_table("doc", {"id": "int", "text": "string"}, primary_key="id")
        index = lake.create_index("doc", "words", using="fulltext", columns="text")
        for number in range(3):
            table.append([{"id": number, "text": f"hello number{number}"}])
            index.wait()
        assert index.search("hello").num_rows == 3
        shutil.rmtree(tmp_path / "cache")
        assert index.search("hello").num_rows == 3
        table.append([{"id": 9, "text": "hello again"}])
        assert index.search("hello", freshness="latest").num_rows == 4
        assert sorted(keys(index.search("hello", where="id < 2"))) == [0, 1]
