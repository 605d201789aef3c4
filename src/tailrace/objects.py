"""One interface to the place where a lake's objects lie.

Always true: an object is written once, under a name that was never used before. Paths are
relative to the lake's data path. A `Storage` can be pickled: Spark's workers write and read
through it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError
from obstore.store import from_url

from tailrace.address import is_remote
from tailrace.arguments import show
from tailrace.errors import Action, CorruptError, Fix, InvalidError, UnavailableError


class Storage:
    """The objects of one lake."""

    def __init__(self, data_path: str, options: Mapping[str, Any] | None = None) -> None:
        self.data_path = data_path
        self.options = _checked_options(options or {})
        # A local directory is read and written through the file system, without detours.
        self.local: Path | None = None if is_remote(data_path) else Path(data_path)
        self._store: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None}

    @property
    def store(self) -> Any:
        """The obstore of a remote place, opened when first used."""
        if self._store is None:
            options = {k: v for k, v in self.options.items() if k != "allow_http"}
            client = {"allow_http": True} if self.options.get("allow_http") else None
            try:
                self._store = from_url(
                    self.data_path, config=cast(Any, options), client_options=cast(Any, client)
                )
            except (BaseError, TypeError, ValueError):
                # Nothing of the error's own text: it may repeat the options, secrets among them.
                given = ", ".join(sorted(self.options)) or "none given"
                fix = Fix(Action.CHECK_STORAGE_OPTIONS, given)
                raise InvalidError(f"cannot open {self.data_path}", fix=fix) from None
        return self._store

    def uri(self, path: str) -> str:
        """The object's address as other programs write it."""
        return f"{self.data_path}{path}"

    @contextmanager
    def open_write(self, path: str) -> Iterator[Sink]:
        """A sink for a new object, complete when the block ends without an error.

        It is durable after a `sync` of its directory.
        """
        try:
            with self._open_local(path) if self.local else self._open_remote(path) as sink:
                yield sink
        except (BaseError, OSError) as error:
            raise self._unreachable(path, error) from error

    @contextmanager
    def _open_local(self, path: str) -> Iterator[Sink]:
        assert self.local is not None
        place = self.local / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(place), "wb") as native:
            sink = Sink(native=native)
            yield sink
        with place.open("rb") as handle:
            os.fsync(handle.fileno())
            sink.size = handle.seek(0, os.SEEK_END)
            handle.seek(max(0, sink.size - 8))
            sink.tail = handle.read()

    @contextmanager
    def _open_remote(self, path: str) -> Iterator[Sink]:
        raw = _Writer(obstore.open_writer(self.store, path))
        with pa.PythonFile(raw, mode="w") as native:
            sink = Sink(native=native)
            yield sink
        raw.close()
        sink.size, sink.tail = raw.tell(), raw.tail

    def sync(self, directory: str) -> None:
        """Make the names of new objects durable: a power cut could keep their bytes only."""
        if self.local is None:
            return
        try:
            handle = os.open(self.local / directory, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise self._unreachable(directory, error) from error

    @contextmanager
    def open_read(self, path: str) -> Iterator[pa.NativeFile]:
        """An object, for random access. Damage found inside the block names the object."""
        try:
            if self.local is not None:
                with pa.OSFile(str(self.local / path)) as source:
                    yield source
                return
            reader = _Reader(self.store, path)
            with pa.PythonFile(io.BufferedReader(reader, 1 << 16), mode="r") as source:
                yield source
        except FileNotFoundError as error:
            raise CorruptError(f"the object {self.uri(path)} is missing") from error
        except BaseError as error:
            raise self._unreachable(path, error) from error
        except MemoryError:  # also Arrow's own
            raise
        except (pa.ArrowException, OSError) as error:
            raise CorruptError(f"the object {self.uri(path)} is damaged: {error}") from error

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; one that is already gone is no error."""
        for path in paths:
            try:
                if self.local is not None:
                    (self.local / path).unlink()
                else:
                    obstore.delete(self.store, path)
            except FileNotFoundError:
                continue
            except (BaseError, OSError) as error:
                raise self._unreachable(path, error) from error

    def list(self) -> Iterator[str]:
        """Every object's path. For the sweep only: reading never lists."""
        if self.local is not None:
            for directory, _, names in os.walk(self.local):
                for name in names:
                    yield (Path(directory) / name).relative_to(self.local).as_posix()
            return
        try:
            for page in obstore.list(self.store):
                for entry in page:
                    yield str(entry["path"])
        except (BaseError, FileNotFoundError) as error:
            raise self._unreachable("", error) from error

    def _unreachable(self, path: str, error: Exception) -> UnavailableError:
        # Of a remote store's error only the kind: its text is long, and not ours to vouch for.
        if isinstance(error, BaseError):
            reason = type(error).__name__.removesuffix("Error")
        else:
            reason = getattr(error, "strerror", None) or str(error).partition(":")[0]
        return UnavailableError(f"{self.uri(path)} cannot be reached ({reason})")


@dataclass(kw_only=True)
class Sink:
    """Where an object is written to, and once it is closed, what one wants to know of it."""

    native: pa.NativeFile
    size: int = 0
    tail: bytes = b""  # the last eight bytes: in Parquet, the footer's length and the magic


class _Reader(io.RawIOBase):
    """An object as a seekable file: each read is one ranged request."""

    def __init__(self, store: Any, path: str) -> None:
        self._store, self._path, self._at = store, path, 0
        self._size = int(obstore.head(store, path)["size"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, target: Any) -> int:
        length = min(len(target), self._size - self._at)
        if length <= 0:
            return 0
        data = memoryview(obstore.get_range(self._store, self._path, start=self._at, length=length))
        if len(data) != length:  # the object's length is known: it is the answer that was cut
            raise UnavailableError(
                f"{self._path}: {length} bytes were asked for, and {len(data)} came"
            )
        target[:length] = data
        self._at += length
        return length


class _Writer:
    """What Arrow asks of a sink, on top of a multi-part upload."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._at, self.tail, self.closed = inner, 0, b"", False

    def write(self, data: Any) -> int:
        self._inner.write(bytes(data))
        self._at += len(data)
        self.tail = (self.tail + bytes(data[-8:]))[-8:]
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Parts are sent when they are full, and all is visible only after `close`."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._inner.close()


def _checked_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the storage. What they are set to is not repeated: it may be secret."""
    for name, value in given.items():
        if not isinstance(name, str):
            raise InvalidError(f"the names of storage_options are text, not {show(name)}")
        if not isinstance(value, str | bool | int | float):
            raise InvalidError(
                f"the storage option {name!r} is text, a number, True or False, "
                f"and not a {type(value).__name__}"
            )
    return dict(given)
