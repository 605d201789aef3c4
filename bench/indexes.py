"""Indexes: building, changing and searching them, beside tantivy, faiss and Lance.

The library alone reads the same rows from memory, in one process. Built are 500,000 short texts
and 200,000 vectors; searched are 200,000 rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tantivy

import tailrace
from bench import report, timing
from bench.bench import Bench
from bench.report import Row
from tailrace.indexes.vectors.comparison import faiss  # with the code that suits the processor

TEXTS, VECTORS, DIMENSION = 500_000, 200_000, 128
SEARCHED, TAIL, CHANGED = 200_000, 10_000, 1_000
ROUNDS, QUERIES = 3, 300
_WORDS = 20_000


def measure(bench: Bench) -> Iterator[Row]:
    for kind in (_Text(), _Vectors()):
        yield from _building(bench, kind)
        yield from _searching(bench, kind)


class _Text:
    """Short texts, of words that are as unequal as words are."""

    name, count = "texts", TEXTS
    columns: dict[str, str] = {"id": "bigint", "body": "string"}  # noqa: RUF012

    def rows(self, first: int, count: int) -> pa.Table:
        random = np.random.default_rng(first)
        words = np.minimum(random.zipf(1.3, size=(count, 12)), _WORDS)
        texts = [" ".join(f"w{number}" for number in row) for row in words]
        return pa.table({"id": np.arange(first, first + count), "body": texts})

    def create(self, lake: tailrace.Lake) -> tailrace.Index:
        return lake.create_index("doc", "words", using="fulltext", columns="body")

    def alone(self, rows: pa.Table, place: Path) -> tantivy.Index:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("body", tokenizer_name="en_stem", index_option="position")
        builder.add_unsigned_field("id", stored=True)
        index = tantivy.Index(builder.build(), path=str(place))
        writer = index.writer(heap_size=400_000_000)
        for key, text in zip(rows["id"].to_pylist(), rows["body"].to_pylist(), strict=True):
            document = tantivy.Document()
            document.add_text("body", text)
            document.add_unsigned("id", key)
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        return index

    def search_alone(self, index: tantivy.Index, _: tailrace.Index) -> Callable[[Any], object]:
        index.reload()
        searcher = index.searcher()

        def search(query: str) -> object:
            hits = searcher.search(index.parse_query(query, ["body"]), 10).hits
            return [searcher.doc(address)["id"] for _, address in hits]

        return search

    def queries(self) -> list[Any]:
        random = np.random.default_rng(1)
        pairs = np.minimum(random.zipf(1.3, size=(QUERIES, 2)) + 20, _WORDS)
        return [f"w{a} w{b}" for a, b in pairs]

    def lance(self, rows: pa.Table, tail: pa.Table, place: Path) -> Callable[[Any], object]:
        import lance

        written = lance.write_dataset(rows, str(place))
        written.create_scalar_index("body", "INVERTED")
        lance.write_dataset(tail, str(place), mode="append")
        dataset = lance.dataset(str(place))
        return lambda query: dataset.scanner(
            columns=["id"], full_text_query=query, limit=10
        ).to_table()


class _Vectors:
    """Clouds that overlap."""

    name, count = "vectors", VECTORS
    columns: dict[str, str] = {"id": "bigint", "v": "array<float>"}  # noqa: RUF012

    def _vectors(self, seed: int, count: int) -> Any:
        random = np.random.default_rng(seed)
        spectrum = np.arange(1, DIMENSION + 1) ** -0.5
        middles = np.random.default_rng(5).normal(size=(400, DIMENSION)) * spectrum
        noise = random.normal(size=(count, DIMENSION)) * spectrum
        return (0.6 * middles[random.integers(0, 400, count)] + noise).astype(np.float32)

    def rows(self, first: int, count: int) -> pa.Table:
        flat = pa.array(self._vectors(first, count).ravel())
        lists = pa.ListArray.from_arrays(np.arange(count + 1) * DIMENSION, flat)
        return pa.table({"id": np.arange(first, first + count), "v": lists})

    def create(self, lake: tailrace.Lake) -> tailrace.Index:
        options = {"dimension": DIMENSION}
        return lake.create_index("doc", "near", using="vector", columns="v", options=options)

    def alone(self, rows: pa.Table, place: Path) -> Any:
        vectors = rows["v"].combine_chunks().flatten().to_numpy().reshape(-1, DIMENSION).copy()
        faiss.normalize_L2(vectors)
        lists = int(2 * len(vectors) ** 0.5)
        quantizer = faiss.IndexFlatIP(DIMENSION)
        kind = faiss.ScalarQuantizer.QT_fp16
        metric = faiss.METRIC_INNER_PRODUCT
        index = faiss.IndexIVFScalarQuantizer(quantizer, DIMENSION, lists, kind, metric, True)
        index.cp.niter = 10
        index.train(vectors[np.random.default_rng(1).permutation(len(vectors))[: 64 * lists]])
        index.add_with_ids(vectors, rows["id"].to_numpy())
        faiss.write_index(index, str(place / "index"))
        index.referenced_objects = [quantizer]
        return index

    def search_alone(self, index: Any, ours: tailrace.Index) -> Callable[[Any], object]:
        """With as many lists as ours looks at."""
        used = ours.find(self.queries()[0]).reader.snapshot.parts.newest_centroids
        index.nprobe = used.probes if used else index.nlist

        def search(query: Any) -> object:
            vector = query.reshape(1, -1).copy()
            faiss.normalize_L2(vector)
            return index.search(vector, 10)

        return search

    def queries(self) -> list[Any]:
        return list(self._vectors(-1 % 2**32, QUERIES))

    def lance(self, rows: pa.Table, tail: pa.Table, place: Path) -> Callable[[Any], object]:
        import lance

        fixed = pa.list_(pa.float32(), DIMENSION)
        shape = pa.schema([("id", pa.int64()), ("v", fixed)])
        written = lance.write_dataset(rows.cast(shape), str(place))
        lists = int(len(rows) ** 0.5)
        written.create_index("v", "IVF_FLAT", metric="cosine", num_partitions=lists)
        lance.write_dataset(tail.cast(shape), str(place), mode="append")
        dataset = lance.dataset(str(place))
        return lambda query: dataset.scanner(
            columns=["id"], nearest={"column": "v", "q": query, "k": 10, "nprobes": lists // 12}
        ).to_table()


def _size(place: Path) -> int:
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def _building(bench: Bench, kind: _Text | _Vectors) -> Iterator[Row]:
    rows = kind.rows(0, bench.size(kind.count))
    sizes: dict[str, int] = {}
    with bench.lake() as (lake, place):
        table = lake.create_table("doc", kind.columns, primary_key="id")
        table.append(rows)
        files = sorted(place.rglob("*.parquet"))
        lake.spark.range(10).count()

        def ours(_: int) -> Callable[[], object]:
            for index in lake.indexes():
                lake.drop_index("doc", index.name)
            return kind.create(lake).wait

        def create(_: int) -> Callable[[], object]:
            for index in lake.indexes():
                lake.drop_index("doc", index.name)
            return lambda: kind.create(lake)

        def alone(number: int) -> Callable[[], object]:
            own = place / f"alone{number}"
            own.mkdir()

            def run() -> None:
                kind.alone(rows, own)
                sizes["alone"] = _size(own)

            return run

        def scan(_: int) -> Callable[[], object]:
            return lambda: [pq.read_table(file) for file in files]

        creating = timing.alternate(1, ours=create)["ours"]
        taken = timing.alternate(ROUNDS, ours=ours, alone=alone, scan=scan)
        library = "tantivy" if isinstance(kind, _Text) else "faiss"
        limit = 1.3 * taken["alone"] + taken["scan"]
        yield Row(
            what=f"build of an index of {report.count(rows.num_rows)} {kind.name} "
            f"(after its creation, {report.duration(creating)})",
            measured=report.duration(taken["ours"]),
            compared=f"{library} alone {report.duration(taken['alone'])}, "
            f"scan {report.duration(taken['scan'])}",
            ratio=taken["ours"] / taken["alone"],
            target=f"≤ 1.3{report.TIMES} and the scan",
            met=taken["ours"] <= limit,
        )
        (index,) = lake.indexes()
        sizes["ours"] = index.status().size_bytes
        yield Row(
            what=f"its size, {kind.name}",
            measured=f"{sizes['ours'] / 2**20:.1f} MB",
            compared=f"{library} alone {sizes['alone'] / 2**20:.1f} MB",
            ratio=sizes["ours"] / sizes["alone"],
            target=f"≤ 1.3{report.TIMES}",
            met=sizes["ours"] <= 1.3 * sizes["alone"],
        )
        spent = []
        for number in range(10):
            half = CHANGED // 2
            changed = kind.rows(number * half, half)  # as many again are new
            new = kind.rows(rows.num_rows + number * half, half)
            table.upsert(pa.concat_tables([changed, new]))
            spent.append(timing.seconds(index.wait))
        yield report.absolute(
            f"iteration of {report.count(CHANGED)} changed rows on it, with merges (slowest of 10 "
            f"{report.duration(max(spent))})",
            statistics.median(spent),
            most=2.0,
        )


def _searching(bench: Bench, kind: _Text | _Vectors) -> Iterator[Row]:
    count, tail = bench.size(SEARCHED), bench.size(TAIL)
    rows, more = kind.rows(0, count), kind.rows(count, tail)
    queries = kind.queries()
    with bench.lake() as (lake, place):
        table = lake.create_table("doc", kind.columns, primary_key="id")
        table.append(rows)
        index = kind.create(lake)
        index.wait()
        (place / "alone").mkdir()
        alone = _times(kind.search_alone(kind.alone(rows, place / "alone"), index), queries)
        warm = _times(lambda query: index.search(query, 10), queries)
        yield _latency(f"warm query, {report.count(count)} {kind.name}", warm, 0.0015, 0.010, alone)
        yield _with_conditions(lake, index, queries)
        table.append(more)
        first = timing.seconds(lambda: index.search(queries[0], 10, freshness="latest"))
        yield report.absolute(
            f"first query as of the latest commit, {report.count(tail)} {kind.name} not indexed",
            first,
            most=0.4,
        )
        then = _times(lambda query: index.search(query, 10, freshness="latest"), queries)
        beside = _times(kind.lance(rows, more, place / "lance"), queries[:50])
        yield Row(
            what="  then, p50 (and p99)",
            measured=f"{report.duration(_at(then, 50))} ({report.duration(_at(then, 99))})",
            compared=f"Lance with as many {report.duration(_at(beside, 50))} "
            f"({report.duration(_at(beside, 99))})",
            ratio=_at(then, 50) / _at(beside, 50),
            target="≤ 20 ms",
            met=_at(then, 50) <= 0.02,
        )


def _with_conditions(lake: tailrace.Lake, index: tailrace.Index, queries: list[Any]) -> Row:
    """A condition that was not searched with before, each time."""
    table, numbers = lake.table("doc"), iter(range(1000))

    def ours(_: int) -> Callable[[], object]:
        where = f"id % 100 = {next(numbers) % 100} AND id >= 0"
        return lambda: index.search(queries[0], 10, where=where)

    def spark(_: int) -> Callable[[], object]:
        where = f"id % 100 = {next(numbers) % 100} AND id >= 0"
        return lambda: table.to_df().where(where).select("id").toArrow()

    taken = timing.alternate(5, ours=ours, spark=spark)
    return Row(
        what="  with a new condition that one row in a hundred fulfils",
        measured=report.duration(taken["ours"]),
        compared=f"Spark, to find these rows alone {report.duration(taken['spark'])}",
        ratio=taken["ours"] / taken["spark"],
    )


def _times(search: Callable[[Any], object], queries: list[Any]) -> list[float]:
    for query in queries[:20]:
        search(query)
    taken = []
    for query in queries:
        start = time.perf_counter()
        search(query)
        taken.append(time.perf_counter() - start)
    return taken


def _at(times: list[float], percent: int) -> float:
    return float(np.percentile(times, percent))


def _latency(what: str, times: list[float], p50: float, p99: float, alone: list[float]) -> Row:
    return Row(
        what=f"{what}, p50 and p99",
        measured=f"{report.duration(_at(times, 50))}, {report.duration(_at(times, 99))}",
        compared=f"the library alone {report.duration(_at(alone, 50))}, "
        f"{report.duration(_at(alone, 99))}",
        ratio=_at(times, 50) / _at(alone, 50),
        target=f"≤ {report.duration(p50)}, {report.duration(p99)}",
        met=_at(times, 50) <= p50 and _at(times, 99) <= p99,
    )
