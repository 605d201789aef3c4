"""Searches the shop's indexes while they change, and checks the hits against every row.

Always true: hits are remembered with the snapshot that they are as of, so that they can be compared
with the table at that snapshot at any later time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import unescape
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.demo import words
from tailrace.demo.derived import INDEXES, REVIEW_TEXT, SearchIndex
from tailrace.errors import UnavailableError

if TYPE_CHECKING:
    from tailrace.lake import Lake

_MOST = 100_000  # rows of a search for all of them
_NEAREST = 10
_NEAR = 1e-4  # vectors whose nearness differs by less are equally near
# What the demo looks for products like: a name, and its category.
LIKE = (("Oak bench", "garden"), ("Ceramic mug", "kitchen"), ("Leather pouch", "travel"))
# How many rows are asked for: of a word, all that have it.
LIMITS = {index: _MOST if index is REVIEW_TEXT else _NEAREST for index in INDEXES}
ASKED = {
    index: words.SEARCHES if index is REVIEW_TEXT else tuple(name for name, _ in LIKE)
    for index in INDEXES
}


@dataclass(frozen=True, kw_only=True)
class Search:
    """What was asked, and found."""

    index: SearchIndex
    asked: str
    snapshot: int  # that it is as of
    keys: tuple[int, ...]  # the best first
    limit: int
    rows: int  # in the index
    seconds: float
    shown: str = ""  # of what was found, for people


def search(lake: Lake, index: SearchIndex, asked: str, *, shows: int = 0) -> Search:
    """Search as of the newest commit, whatever the index has of it."""
    opened, query, limit = lake.index(*index.job), _query(index, asked), LIMITS[index]
    began = time.monotonic()
    answer = opened.find(query, limit, freshness="latest")
    took = time.monotonic() - began
    keys = tuple(answer.hits.keys.column("id").to_pylist())
    shown = ""
    if shows:
        hits = answer.hits
        best = replace(
            hits,
            scores=hits.scores[:shows],
            files=hits.files[:shows],
            positions=hits.positions[:shows],
            keys=hits.keys.slice(0, shows),
        )
        cut = replace(answer, hits=best)
        if index is REVIEW_TEXT:
            rows = opened.result(cut, query, highlight=True)
            shown = " ".join(_sentence(text or "") for text in rows.column("highlight").to_pylist())
        else:
            shown = ", ".join(opened.result(cut, columns=["name"]).column("name").to_pylist())
    return Search(
        index=index,
        asked=asked,
        snapshot=answer.snapshot,
        keys=keys,
        limit=limit,
        rows=answer.reader.live,
        seconds=took,
        shown=shown,
    )


def _sentence(highlight: str) -> str:
    """A highlight as plain text, from the sentence on that has the word."""
    start = highlight.rfind(". ", 0, max(0, highlight.find("<b>")))
    return unescape(re.sub("</?b>", "", highlight[start + 2 if start >= 0 else 0 :]))


def _query(index: SearchIndex, asked: str) -> str | list[float]:
    return asked if index is REVIEW_TEXT else words.vector(asked, dict(LIKE)[asked])


class Searcher:
    """Searches now and then, in turn for each of a few things."""

    def __init__(self, lake: Lake, *, pause: float = 1.0, turn: int = 3) -> None:
        self._lake, self._pause, self._turn = lake, pause, turn
        self._due = time.monotonic()
        self._rounds = 0
        self.done: list[Search] = []

    def look(self) -> tuple[Search, ...]:
        """The newest search of each index."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._pause
            for index in INDEXES:
                asked = ASKED[index][self._rounds // self._turn % len(ASKED[index])]
                shows = 1 if index is REVIEW_TEXT else 4
                try:
                    done = search(self._lake, index, asked, shows=shows)
                except UnavailableError:
                    continue  # it is a long way behind: the table says so
                self.done.append(done)
            self._rounds += 1
        newest = {one.index: one for one in self.done[-4:]}
        return tuple(newest[index] for index in INDEXES if index in newest)


def compare(lake: Lake, done: Search) -> tuple[int, int]:
    """How many rows a search missed, and how many it should not have found.

    Every row of the table is looked at, as it was at the snapshot of the search.
    """
    rows = lake.table(done.index.source).to_arrow(at=done.snapshot)
    twice = len(done.keys) - len(set(done.keys))
    if done.index is REVIEW_TEXT:
        missing, extra = _compare_text(rows, done)
    else:
        missing, extra = _compare_vectors(rows, done)
    return missing, extra + twice


def _compare_text(rows: pa.Table, done: Search) -> tuple[int, int]:
    pattern = rf"(?i)\b{re.escape(done.asked.strip(chr(34)))}\b"
    wanted = rows.filter(pc.match_substring_regex(rows.column("text"), pattern))
    right, got = set(wanted.column("id").to_pylist()), set(done.keys)
    assert len(right) <= done.limit
    return len(right - got), len(got - right)


def _compare_vectors(rows: pa.Table, done: Search) -> tuple[int, int]:
    vectors = np.stack(rows.column("likeness").to_numpy()).astype(np.float64)
    query = np.array(words.vector(done.asked, dict(LIKE)[done.asked]))
    near = vectors @ query / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(query))
    by_key = dict(zip(rows.column("id").to_pylist(), near.tolist(), strict=True))
    wanted = sorted(by_key.values(), reverse=True)[: done.limit]
    got = sorted((by_key.get(key, -2.0) for key in done.keys), reverse=True)
    extra = sum(one < wanted[-1] - _NEAR for one in got) if wanted else len(got)
    pairs = zip(wanted, got, strict=False)
    missing = len(wanted) - len(got) + sum(want > have + _NEAR for want, have in pairs)
    return max(0, missing), extra


def typical_seconds(done: Sequence[Search]) -> float | None:
    """The median time of some searches."""
    return float(np.median([one.seconds for one in done])) if done else None
