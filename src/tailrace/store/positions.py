"""Positions of rows in a data file, in the two forms in which they are used: arrays and bitmaps.

A bitmap takes a bit for each row up to the last position, and so goes to Spark and comes from
there; everything else works on sorted arrays.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]  # sorted, no position twice
PositionsByFile = dict[int, Positions]  # by the keys of files

NONE: Positions = np.empty(0, np.int64)


def union(parts: Iterable[Positions]) -> Positions:
    """All positions of the parts, sorted, none twice."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts]))


def to_words(positions: Positions) -> npt.NDArray[np.int64]:
    """A bitmap as 64-bit words: bit p % 64 of word p // 64 stands for position p."""
    bits = np.zeros((int(positions[-1]) // 64 + 1) * 64 if len(positions) else 0, np.uint8)
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").view(np.int64)


def to_bitmap(positions: Positions) -> bytes:
    """A bitmap as bytes, to bring many positions from Spark's workers to the driver."""
    bits = np.zeros(int(positions.max()) + 1 if len(positions) else 0, np.uint8)
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def from_bitmap(bitmap: bytes) -> Positions:
    """The positions in a bitmap."""
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64)
