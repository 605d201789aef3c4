"""A table with both kinds of index beside a plain dict, and searches by brute force."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import tantivy

if TYPE_CHECKING:
    from random import Random

    import tailrace

WORDS = (
    *("late", "early", "delivery", "gift", "cheap", "box"),
    *("red", "blue", "broken", "great", "awful", "parcel"),
)
DIMENSION = 6
Row = dict[str, Any]


def new_row(random: Random, key: int) -> Row:
    """Some words or none, and a vector or none."""
    text = " ".join(random.choices(WORDS, k=random.randint(1, 6)))
    vector = [round(random.gauss(0, 1), 3) for _ in range(DIMENSION)]
    return {
        "id": key,
        "note": None if random.random() < 0.1 else text,
        "v": None if random.random() < 0.1 else vector,
        "n": random.randint(0, 9),
    }


@dataclass
class Model:
    """What the table `doc` holds at each snapshot."""

    lake: tailrace.Lake
    random: Random
    rows: dict[int, Row] = field(default_factory=dict)
    at: dict[int, dict[int, Row]] = field(default_factory=dict)
    next_key: int = 0

    def make(self, metric: str = "l2") -> None:
        columns = {"id": "bigint", "note": "string", "v": "array<float>", "n": "int"}
        self.lake.create_table("doc", columns, primary_key="id")
        self.lake.create_index("doc", "words", using="fulltext", columns=["note"])
        self.lake.create_index(
            "doc", "near", using="vector", columns="v", options={"metric": metric, "dimension": 6}
        )
        self.note()

    def note(self) -> None:
        self.at[self.lake.snapshot] = dict(self.rows)

    def step(self) -> None:
        """One commit of inserts, updates and deletes, some of the same keys."""
        random, table = self.random, "doc"
        new = [new_row(random, self.next_key + n) for n in range(random.randint(0, 8))]
        self.next_key += len(new)
        known = list(self.rows)
        changed = [new_row(random, k) for k in random.sample(known, min(len(known), 3))]
        gone = random.sample(known, min(len(known), random.randint(0, 3)))
        with self.lake.transaction() as txn:
            if gone:
                txn.table(table).delete([{"id": key} for key in gone])
            if random.random() < 0.3 and gone:  # deleted, and there again
                changed.append(new_row(random, gone[0]))
            unique = {row["id"]: row for row in (*changed, *new)}
            if unique:
                txn.table(table).upsert(list(unique.values()))
        for key in gone:
            self.rows.pop(key, None)
        self.rows.update(unique)
        self.note()


def having(rows: dict[int, Row], word: str, more: str | None = None) -> set[int]:
    """The keys of the rows with a word, or with both."""
    wanted = {word} | ({more} if more else set())
    return {k for k, r in rows.items() if r["note"] and wanted <= set(r["note"].split())}


def nearest(rows: dict[int, Row], query: list[float], limit: int, metric: str) -> list[float]:
    """The best scores, by all vectors."""
    vectors = [r["v"] for r in rows.values() if r["v"] is not None]
    return sorted(scores_of(np.array(vectors).reshape(-1, len(query)), query, metric))[::-1][:limit]


def scores_of(vectors: Any, query: list[float], metric: str) -> list[float]:
    """Scores as a search says them."""
    given, wanted = np.asarray(vectors, np.float64), np.asarray(query, np.float64)
    if metric == "l2":
        return list(-np.sqrt(((given - wanted) ** 2).sum(axis=1)))
    if metric == "cosine":
        lengths = np.linalg.norm(given, axis=1) * np.linalg.norm(wanted)
        return list(given @ wanted / np.where(lengths == 0, 1, lengths))
    return list(given @ wanted)


def single_index(texts: list[str], path: str) -> tantivy.Index:
    """One tantivy index over all texts, made as its own documentation says."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("body", tokenizer_name="en_stem")
    index = tantivy.Index(builder.build(), path=path)
    writer = index.writer(num_threads=1)
    for text in texts:
        document = tantivy.Document()
        document.add_text("body", text)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    return index


def single_scores(index: tantivy.Index, query: str, limit: int) -> list[float]:
    """The scores of tantivy's own parser and searcher."""
    parsed = index.parse_query(query, ["body"])
    return [score for score, _ in index.searcher().search(parsed, limit).hits]


def keys(result: pa.Table) -> list[int]:
    return list(result.column("id").to_pylist())


def scores(result: pa.Table) -> list[float]:
    return list(result.column("score").to_pylist())
