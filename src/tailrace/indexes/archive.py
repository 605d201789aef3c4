"""A segment's files as one object: a plain tar, with its SHA-256 in the catalog."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tailrace.errors import CorruptError
from tailrace.fixes import Action, Fix
from tailrace.objects import Storage

_CHUNK = 1 << 20


class _HashingSink:
    """A sink that hashes what is written through it."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.hash, self.size = inner, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self._inner.write(data)
        self.hash.update(data)
        self.size += len(data)
        return len(data)


def write_archive(storage: Storage, path: str, files: Iterable[Path]) -> tuple[int, str]:
    """Write files as one object; returns its size and checksum."""
    with storage.open_write(path) as sink:
        hashing: Any = _HashingSink(sink.native)
        with tarfile.open(fileobj=hashing, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
            for file in files:
                entry = tarfile.TarInfo(file.name)
                entry.size = file.stat().st_size
                with file.open("rb") as content:
                    tar.addfile(entry, content)
    storage.sync(path.rpartition("/")[0])
    return int(hashing.size), str(hashing.hash.hexdigest())


def fetch_archive(storage: Storage, path: str, checksum: str, target: Path) -> None:
    """Unpack an object into a directory; CorruptError if its checksum is not the catalog's."""
    packed = target / "pack"
    digest = hashlib.sha256()
    with storage.open_read(path) as source, packed.open("wb") as copy:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            copy.write(chunk)
    if digest.hexdigest() != checksum:
        raise CorruptError(
            f"the object {storage.uri(path)} is damaged: its checksum is not the catalog's",
            fix=Fix(Action.REBUILD_INDEX),
        )
    with tarfile.open(packed) as tar:
        tar.extractall(target, filter="data")
    packed.unlink()
