"""Which files of a table are to be rewritten together, and why.

Pure functions of what the catalog says of the files; `rewrite` does the work.

Files are in tiers by their rows: a tier's files have up to `compact_files` times as many as those
of the tier below. When so many are in one tier, they become one file of the next, together with
all that are smaller. So a row is rewritten once a tier, and of each tier there are fewer than
`compact_files` files. Files of about `file_bytes` are left alone, unless many of their rows are
deleted.

Where a key can be: what is written to keys all over the table makes files that each reach from one
end of the keys to the other, however they are merged. Within a file, the rows are sorted, so that a
look for a key decodes one row group of a file; a tier's merge makes one such place of eight. Files
of full size that were filled at different times go on to overlap, since dividing their keys would
rewrite all of them again and again; only a full compaction, which a person asks for, does that, for
those that overlap with others (`Bounds`). Keys that grow with time are no trouble: merged or not,
files with old ones and files with new ones don't overlap.

Always true: no file is in two groups, and what is chosen makes progress: after some rewrites
nothing is chosen any more, unless rows change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tailrace.settings import Settings, group_rows
from tailrace.store.files import DataFile
from tailrace.store.stats import Bounds

# The share of deleted rows above which a file is written anew. Below, reading them costs less.
_DELETED = 0.2
# But not for fewer deleted rows and bytes than this, which take no time to read: where much is
# deleted again and again, a file would be rewritten each time.
_FEW_DELETED, _FEW_BYTES = 10_000, 4 * 1024 * 1024
# Of `file_bytes`: files from here on are full, and larger ones than that are divided. Between the
# two lies what a rewrite makes.
_FULL, _OVERSIZED = 0.5, 2
# At most so many full files are rewritten at once, or what is as much: a rewrite that is stopped is
# done again, and nobody knows for how long it would run otherwise.
_MOST_FULL = 64


@dataclass(frozen=True, kw_only=True)
class FileGroup:
    """Files to rewrite together."""

    files: tuple[DataFile, ...]
    reason: str  # in words, for people

    @property
    def rows(self) -> int:
        """How many rows are rewritten."""
        return sum(map(live_rows, self.files))


@dataclass(frozen=True, kw_only=True)
class TableHealth:
    """How the files of a table are at the newest snapshot, and what is worth a compaction."""

    files: int
    small_files: int  # of less than half of `Settings.file_bytes`
    rows: int  # without the deleted ones
    deleted_rows: int  # that are still in the files
    bytes: int
    due: tuple[str, ...]  # why some files are worth it, for each group of them

    @property
    def deleted_share(self) -> float:
        """The share of deleted rows in the files."""
        return self.deleted_rows / max(1, self.rows + self.deleted_rows)

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "deleted_share": self.deleted_share}


def health_of(files: Sequence[DataFile], settings: Settings, *, looked_up: bool) -> TableHealth:
    """The health of a table with these files."""
    known = _Files.of(files, settings, looked_up, ())
    due = choose_files(files, settings, looked_up=looked_up)
    return TableHealth(
        files=len(files),
        small_files=sum(not known.is_full(file) for file in files),
        rows=sum(map(live_rows, files)),
        deleted_rows=sum(map(deleted_rows, files)),
        bytes=sum(file.size for file in files),
        due=tuple(group.reason for group in due),
    )


def live_rows(file: DataFile) -> int:
    """The rows of a file that are not deleted."""
    return file.rows - deleted_rows(file)


def deleted_rows(file: DataFile) -> int:
    """The rows of a file that are deleted."""
    return file.deletes.count if file.deletes else 0


def choose_files(
    files: Iterable[DataFile],
    settings: Settings,
    *,
    looked_up: bool,
    exclude: Collection[int] = (),
) -> list[FileGroup]:
    """The groups of files that are worth a rewrite now.

    `looked_up` is the table's (`is_looked_up`). `exclude` has the ids of files that others rewrite.
    """
    return list(_choose(_Files.of(files, settings, looked_up, exclude)))


def choose_all(
    files: Iterable[DataFile],
    settings: Settings,
    *,
    looked_up: bool,
    exclude: Collection[int] = (),
    bounds: Mapping[int, Bounds] | None = None,
) -> list[FileGroup]:
    """The groups of files to rewrite so that all are in their final form.

    That is of full size but for one, without deleted rows, and without overlap where `bounds` has
    those of the first column that rows are sorted by, by the files' ids. What is more than one
    rewrite may do takes several rounds.
    """
    return list(_choose_all(_Files.of(files, settings, looked_up, exclude), bounds or {}))


@dataclass(frozen=True, kw_only=True)
class _Files:
    every: tuple[DataFile, ...]
    settings: Settings
    group_rows: int

    @staticmethod
    def of(
        files: Iterable[DataFile],
        settings: Settings,
        looked_up: bool,  # noqa: FBT001
        exclude: Collection[int],
    ) -> _Files:
        return _Files(
            every=tuple(file for file in files if file.id not in exclude),
            settings=settings,
            group_rows=group_rows(settings, looked_up=looked_up),
        )

    def bytes(self, file: DataFile) -> int:
        """About how many bytes a file's rows take in another, where it is large."""
        return (file.size - file.footer) * live_rows(file) // max(1, file.rows)

    def is_full(self, file: DataFile) -> bool:
        return self.bytes(file) >= _FULL * self.settings.file_bytes

    def is_oversized(self, file: DataFile) -> bool:
        # A row group is not divided.
        large = self.bytes(file) > _OVERSIZED * self.settings.file_bytes
        return large and file.rows > self.group_rows

    def is_final(self, file: DataFile) -> bool:
        return self.is_full(file) and not self.is_oversized(file) and not deleted_rows(file)

    def tier(self, rows: int) -> int:
        tier, most = 0, self.settings.compact_files
        while rows >= most:
            tier, rows = tier + 1, rows // most
        return tier

    def split(self, files: Sequence[DataFile], reason: str) -> Iterator[FileGroup]:
        """Groups that are no larger than one rewrite may be."""
        most, held, size = _MOST_FULL * self.settings.file_bytes, list[DataFile](), 0
        for file in files:
            if held and size + self.bytes(file) > most:
                yield FileGroup(files=tuple(held), reason=reason)
                held, size = [], 0
            held.append(file)
            size += self.bytes(file)
        if held:
            yield FileGroup(files=tuple(held), reason=reason)


def _choose(files: _Files) -> Iterator[FileGroup]:
    small = _small(files)
    if small:
        rows = [live_rows(file) for file in small]
        yield from files.split(
            small, f"{len(small)} files are small: they have {min(rows):,} to {max(rows):,} rows"
        )
    taken = {file.key for file in small}
    rest = [file for file in files.every if file.key not in taken]
    oversized = [file for file in rest if files.is_oversized(file)]
    yield from map(_divided, oversized)
    deleted = [f for f in rest if f not in oversized and _wastes(f)]
    yield from files.split(deleted, _deleted_reason(deleted))


def _small(files: _Files) -> list[DataFile]:
    """The files to merge: the highest tier that is full with what is below, and all below."""
    tiers: dict[int, list[DataFile]] = {}
    for file in files.every:
        if not files.is_full(file):
            tiers.setdefault(files.tier(live_rows(file)), []).append(file)
    chosen: list[DataFile] = []
    smaller: list[DataFile] = []
    for tier in sorted(tiers):
        # What comes of the chosen may be the last that is missing here: then a row skips a tier.
        merged = bool(chosen) and files.tier(sum(map(live_rows, chosen))) >= tier
        smaller += tiers[tier]
        if len(tiers[tier]) + merged >= files.settings.compact_files:
            chosen = list(smaller)
    return sorted(chosen, key=lambda file: file.id)


def _wastes(file: DataFile) -> bool:
    """Whether enough of a file is deleted."""
    gone = deleted_rows(file)
    few = gone < _FEW_DELETED and gone * file.size < _FEW_BYTES * file.rows
    return not few and gone > _DELETED * file.rows


def _deleted_reason(files: Sequence[DataFile]) -> str:
    gone, rows = sum(map(deleted_rows, files)), sum(file.rows for file in files)
    return f"{gone:,} of {rows:,} rows are deleted"


def _divided(file: DataFile) -> FileGroup:
    return FileGroup(files=(file,), reason=f"a file of {file.size:,} bytes is too large")


def _choose_all(files: _Files, bounds: Mapping[int, Bounds]) -> Iterator[FileGroup]:
    overlapping = _overlapping(files.every, bounds)
    chosen = [file for file in files.every if not files.is_final(file) or file.key in overlapping]
    if len(chosen) == 1 and not deleted_rows(chosen[0]) and not files.is_oversized(chosen[0]):
        return  # nothing is left to merge it with
    lows = {file.key: _low(file, bounds) for file in chosen}
    if all(low is not None for low in lows.values()):
        # What overlaps stays together where there is more than one rewrite can do.
        chosen.sort(key=lambda file: lows[file.key])
    else:
        chosen.sort(key=lambda file: file.id)
    yield from files.split(chosen, _all_reason(files, chosen, overlapping))


def _low(file: DataFile, bounds: Mapping[int, Bounds]) -> Any:
    known = bounds.get(file.id)
    return None if known is None else known[0]


def _overlapping(files: Iterable[DataFile], bounds: Mapping[int, Bounds]) -> set[int]:
    """The keys of the files that hold values from between the bounds of others."""
    known = [(found, file.key) for file in files if (found := bounds.get(file.id)) is not None]
    overlapping: set[int] = set()
    before: tuple[Any, int] | None = None  # the greatest value so far, and whose it is
    for (low, high), key in sorted(known, key=lambda one: one[0]):
        # One value may end a file and begin the next: of more than one column of a key.
        if before is not None and low < before[0]:
            overlapping |= {before[1], key}
        if before is None or high > before[0]:
            before = (high, key)
    return overlapping


def _all_reason(files: _Files, chosen: Sequence[DataFile], overlapping: Collection[int]) -> str:
    counts = {
        "small": sum(not files.is_full(file) for file in chosen),
        "too large": sum(files.is_oversized(file) for file in chosen),
        "with deleted rows": sum(deleted_rows(file) > 0 for file in chosen),
        "overlapping": sum(file.key in overlapping for file in chosen),
    }
    found = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"of {len(chosen)} files: {found}"
