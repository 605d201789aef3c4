"""The files to load: finds them, and opens them, here and in Spark's workers.

A file is local, or an object that the lake's storage options reach. Always true: names are as
the user gave them, locations are absolute.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError

from tailrace.address import split_place
from tailrace.arguments import show
from tailrace.errors import InvalidError, NotFoundError, UnavailableError
from tailrace.loading.options import Format
from tailrace.objects import Storage

_FORMATS = {
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
}
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """One file to load."""

    name: str  # as the user gave it
    location: str  # an absolute path, or a URL
    size: int
    format: Format
    codec: str | None = None  # how it is compressed as a whole
    storage: Storage | None = None  # for a URL: what opens it

    @property
    def has_tabs(self) -> bool:
        """Whether its name says that tabs separate its fields."""
        return ".tsv" in PurePosixPath(self.location).suffixes[-2:]

    @contextmanager
    def open(self) -> Iterator[pa.NativeFile]:
        """The bytes as they are stored, for random access."""
        if self.storage is not None:
            with self.storage.open_read(_key(self.location)) as source:
                yield source
            return
        try:
            source = pa.OSFile(self.location)
        except FileNotFoundError as error:
            raise NotFoundError(
                f"there is no file {self.location}: it was deleted, or Spark's workers run on "
                "other machines, which need it under the same path"
            ) from error
        except OSError as error:
            raise InvalidError(f"the file {self.name} cannot be opened: {error}") from error
        with source:
            yield source

    @contextmanager
    def open_text(self) -> Iterator[pa.NativeFile]:
        """The decompressed bytes, in order."""
        with self.open() as stored:
            if self.codec is None:
                yield stored
                return
            with pa.CompressedInputStream(stored, self.codec) as text:
                yield text


def find_files(
    given: str | Path | Iterable[str | Path], storage: Storage, wanted: Format | None
) -> tuple[InputFile, ...]:
    """The files that names, patterns and URLs stand for, in the order given; none twice."""
    names = [given] if isinstance(given, str | Path) else list(given)
    if not names:
        raise InvalidError("name at least one file to load")
    files: list[InputFile] = []
    for name in map(str, names):
        try:
            matching = _remote(name, storage, wanted) if "://" in name else _local(name, wanted)
        except (OSError, RuntimeError, ValueError) as error:  # a name too long, ~nobody
            raise InvalidError(f"cannot look for the file {show(name)}: {error}") from error
        files.extend(matching)
    seen: set[str] = set()
    for file in files:
        if file.location in seen:
            raise InvalidError(
                f"the file {file.name} is named twice: its rows would be loaded twice"
            )
        seen.add(file.location)
    return tuple(files)


def _local(name: str, wanted: Format | None) -> list[InputFile]:
    path = Path(name).expanduser()
    if path.is_dir():
        raise InvalidError(f"{name} is a directory: give its files, as in '{name.rstrip('/')}/*'")
    paths = [path]
    if not path.exists():
        # A shell passes a quoted pattern on as it is, and one that matches nothing.
        matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207  (`**`, `~`, absolute)
        paths = [match for match in map(Path, matches) if match.is_file()]
        if not paths:
            raise NotFoundError(f"there is no file {name}")
    return [
        InputFile(
            name=name if len(paths) == 1 and paths[0] == path else str(one),
            location=str(one.resolve()),
            size=one.stat().st_size,
            format=wanted or _format_of(one.name),
            codec=_codec_of(one.name, wanted),
        )
        for one in paths
    ]


def _remote(url: str, storage: Storage, wanted: Format | None) -> list[InputFile]:
    parts = split_place(url)
    if parts.scheme == "file":
        return _local(parts.path, wanted)
    url = f"{parts.scheme}://{parts.netloc}{parts.path}"
    bucket = Storage(f"{parts.scheme}://{parts.netloc}/", storage.options)
    if bucket.local is not None:
        raise InvalidError(f"cannot load from {url!r}: give a path, file:// or s3://")
    try:
        sizes = _sizes(bucket, _key(url))
    except BaseError as error:
        raise UnavailableError(f"{url} cannot be reached ({type(error).__name__})") from error
    if not sizes:
        raise NotFoundError(f"there is no object {url}")
    return [
        InputFile(
            name=f"{bucket.data_path}{key}",
            location=f"{bucket.data_path}{key}",
            size=size,
            format=wanted or _format_of(key),
            codec=_codec_of(key, wanted),
            storage=bucket,
        )
        for key, size in sorted(sizes.items())
    ]


def _sizes(bucket: Storage, key: str) -> dict[str, int]:
    """The sizes of the objects that a key or a pattern stands for."""
    if not any(c in key for c in "*?["):
        try:
            return {key: int(obstore.head(bucket.store, key)["size"])}
        except FileNotFoundError:
            return {}
    literal = key[: min(key.index(c) for c in "*?[" if c in key)]
    listed = obstore.list(bucket.store, prefix=literal.rpartition("/")[0] or None)
    return {
        entry["path"]: int(entry["size"])
        for page in listed
        for entry in page
        if fnmatchcase(entry["path"], key)
    }


def _key(url: str) -> str:
    """An object's path in its bucket."""
    return urlsplit(url).path.lstrip("/")


def _format_of(name: str) -> Format:
    suffixes = [suffix for suffix in PurePosixPath(name).suffixes[-2:] if suffix not in _CODECS]
    known = _FORMATS.get(suffixes[-1].lower()) if suffixes else None
    if known is None:
        raise InvalidError(
            f"the name of {name} does not tell its format: give one, {', '.join(Format)}"
        )
    return known


def _codec_of(name: str, wanted: Format | None) -> str | None:
    codec = _CODECS.get(PurePosixPath(name).suffix.lower())
    if codec is not None and (wanted or _format_of(name)) is Format.PARQUET:
        raise InvalidError(f"{name}: a Parquet file is compressed inside, not as a whole")
    return codec
