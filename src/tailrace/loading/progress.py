"""How far a load is: counted part by part, and told to the caller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tailrace.loading.options import Format
from tailrace.loading.parts import Part
from tailrace.loading.source import InputFile


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a load is. Told now and then, on the thread that called `load`."""

    doing: str = "reading"  # or "writing"
    files_done: int
    files: int
    bytes_done: int = 0
    bytes: int  # of all files, as they are stored
    rows: int = 0  # read so far
    rejected: int = 0


class ProgressCounter:
    """Adds up what is done, and tells it each time."""

    def __init__(
        self, tell: Callable[[Progress], None], files: Sequence[InputFile], parts: Iterable[Part]
    ) -> None:
        self._tell = tell
        self._unread = Counter(part.file.location for part in parts)  # parts, by file
        self._now = Progress(
            files_done=len(files) - len(self._unread),  # empty ones have no parts
            files=len(files),
            bytes=sum(file.size for file in files),
        )
        tell(self._now)

    def read(self, parts: Iterable[Part], *, rows: int, rejected: int) -> None:
        """Some parts have been read."""
        now = self._now
        files, size = now.files_done, now.bytes_done
        for part in parts:
            self._unread[part.file.location] -= 1
            is_last = not self._unread[part.file.location]
            files += is_last
            # Row groups say only how large they are uncompressed.
            is_parquet = part.file.format is Format.PARQUET
            size += part.file.size * is_last if is_parquet else part.size
        self._now = replace(
            now,
            files_done=files,
            bytes_done=min(now.bytes, size),
            rows=now.rows + rows,
            rejected=now.rejected + rejected,
        )
        self._tell(self._now)

    def writing(self) -> None:
        """All has been read."""
        self._now = replace(self._now, doing="writing", bytes_done=self._now.bytes)
        self._tell(self._now)
