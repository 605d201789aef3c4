"""A segment's files: packed into one object in the lake's storage, unpacked in a local cache.

Always true: an object is a plain tar whose SHA-256 is in the catalog. An entry of the cache appears
whole, under the checksum that verified it, and never changes. What is open stays usable when its
entry is evicted, because its files are linked or mapped by then. The least recently used entries go
first.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tailrace.errors import Action, CorruptError, Fix
from tailrace.objects import Storage

T = TypeVar("T")
_CHUNK = 1 << 20
_TRIES = 3
_OLD = 24 * 3600  # seconds


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


def default_directory() -> Path:
    """`$TAILRACE_CACHE`, or the user's cache directory; without one, a temporary directory."""
    given = os.environ.get("TAILRACE_CACHE")
    if given:
        return Path(given)
    try:
        home = os.environ.get("XDG_CACHE_HOME")
        directory = (Path(home) if home else Path.home() / ".cache") / "tailrace"
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # Spark's workers may have no home, or none to write to
        return Path(tempfile.gettempdir()) / f"tailrace-{os.getuid()}"
    return directory


class SegmentCache:
    """Segments on the local disk; safe for several threads and processes."""

    def __init__(self, directory: Path | None = None, *, limit: int) -> None:
        self.directory = directory or default_directory()
        self._limit = limit
        self._lock = threading.Lock()
        self._pinned: Counter[str] = Counter()
        self._added = self._room = 0  # bytes since the last eviction, and until the next
        self._forget_old()

    def _forget_old(self) -> None:
        """Remove what killed processes have left behind."""
        for entry in (self.directory / "open").glob("*"):
            with suppress(OSError, ValueError):
                is_old = time.time() - entry.stat().st_mtime > _OLD
                if is_old and not _is_alive(int(entry.name)):
                    shutil.rmtree(entry, ignore_errors=True)

    def use(self, storage: Storage, path: str, checksum: str, open_it: Callable[[Path], T]) -> T:
        """Open an object's files, fetching them if they are not here."""
        with self._lock:
            self._pinned[checksum] += 1
        try:
            for _ in range(_TRIES):
                entry = self._fetch(storage, path, checksum)
                try:
                    return open_it(entry)
                except FileNotFoundError:
                    continue  # another process has evicted it in this very moment
            return open_it(self._fetch(storage, path, checksum))
        finally:
            with self._lock:
                self._pinned[checksum] -= 1

    def _fetch(self, storage: Storage, path: str, checksum: str) -> Path:
        entry = self.directory / "segments" / checksum
        if entry.is_dir():
            _touch(entry)
            return entry
        entry.parent.mkdir(parents=True, exist_ok=True)
        fetched = self.temporary()
        try:
            fetch_archive(storage, path, checksum, fetched)
            _touch(fetched)
            try:
                fetched.rename(entry)
            except OSError:
                if not entry.is_dir():  # else another was faster
                    raise
        finally:
            shutil.rmtree(fetched, ignore_errors=True)
        self._make_room(entry)
        return entry

    def temporary(self) -> Path:
        """A new directory on the same disk, for the caller to remove."""
        parent = self.directory / "open" / str(os.getpid())
        parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=parent))

    def _make_room(self, fetched: Path) -> None:
        """Evict entries, once so much was added that the cache may be too large."""
        with self._lock:
            self._added += sum(file.stat().st_size for file in fetched.iterdir())
            if self._added < self._room:
                return
            self._added = 0
        left = self._evict()
        with self._lock:
            self._room = max(left, self._limit // 16)

    def _evict(self) -> int:
        """Remove the least recently used entries; returns for how many bytes there is room."""
        entries = []
        for entry in (self.directory / "segments").iterdir():
            try:
                size = sum(file.stat().st_size for file in entry.iterdir())
                entries.append((entry.stat().st_mtime, size, entry))
            except FileNotFoundError:
                continue
        total = sum(size for _, size, _ in entries)
        for _, size, entry in sorted(entries):
            if total <= self._limit:
                break
            with self._lock:
                if self._pinned[entry.name]:
                    continue
                gone = entry.with_name(f"{entry.name}.gone-{os.getpid()}-{threading.get_ident()}")
                try:
                    entry.rename(gone)  # at once: nobody finds half of it
                except OSError:
                    continue
            shutil.rmtree(gone, ignore_errors=True)
            total -= size
        return self._limit - total


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is another user's
    return True


def _touch(entry: Path) -> None:
    """Mark an entry as used now, by our own clock: the kernel's goes in steps."""
    now = time.time_ns()
    os.utime(entry, ns=(now, now))
