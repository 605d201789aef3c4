"""Trains the centroids that divide the vectors of an index into lists; a search looks at a few.

Always true: centroids never change, and all segments that the same ones divide can be searched as
if they were one. New ones are trained when the index has outgrown them. They are entered in the
catalog as soon as they are found: those that no segment is divided by harm nobody, and a purge
removes them.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from tailrace.indexes import segment as segments
from tailrace.indexes.definition import Definition
from tailrace.indexes.segment import Centroids
from tailrace.indexes.segment_files import write_archive
from tailrace.indexes.vectors.comparison import (
    Vectors,
    faiss,
    flat_index,
    nearest,
    prepared,
    to_vectors,
)
from tailrace.indexes.vectors.kind import COSINE, L2, VectorOptions
from tailrace.indexes.vectors.writer import read_lists
from tailrace.store.files import RowRange, split
from tailrace.store.reader import read
from tailrace.store.scan import each
from tailrace.store.schema import TableInfo
from tailrace.store.write import new_object_name

if TYPE_CHECKING:
    from tailrace.indexes.index_snapshot import IndexSnapshot
    from tailrace.indexes.reader import Opener, Reader
    from tailrace.store.runtime import Runtime
    from tailrace.store.transaction import Transaction

_Numbers = npt.NDArray[np.int64]
_SPREAD = 4  # rows looked at for each that is taken
_GROUPS = 12  # row groups looked at, if there are as many: rows near each other may be alike
_FEWEST = 400  # of the sample: from fewer, there is nothing to learn
# How many times as uneven as at first lists may become.
_UNEVEN = 3.0
_ENOUGH = 4  # rows for each of the sample, up to which it stands for all
NAME, SAMPLE = "centroids.npy", "sample.json"
_PER_LIST = 64  # vectors of the sample for each list: faiss asks for 39
_COUNTED = 8_192  # of the sample, whose lists are counted
_SAMPLE_BYTES = 256 * 1024**2
_ROUNDS = 6  # faiss makes 10: of those, the last four were not seen to make better lists
# Queries to calibrate with: fewer with all rows, among which each has more neighbours.
QUERIES, SAMPLE_QUERIES = 100, 200
NEIGHBOURS = 10  # of each query
# Calibration uses vectors of the index itself; those of users are a little farther from it.
_MARGIN = 0.6


def train(
    txn: Transaction,
    job_id: int,
    definition: Definition,
    table: TableInfo,
    pieces: Sequence[RowRange],
    rows: int | None = None,
) -> Centroids | None:
    """Find centroids for the rows of some pieces, from a sample of them.

    `rows`: how many have a vector; if that is not known, the sample tells about how many. None if
    they are too few: most may be NULL.
    """
    runtime, options = txn.runtime, definition.options
    sample, about = _sample(runtime, definition, table, pieces)
    if len(sample) < _FEWEST:
        return None
    rows = about if rows is None else rows
    trained = find_centroids(options, sample, rows)
    quantizer = flat_index(options, trained)
    probes = _measured_probes(options, quantizer, sample, rows)
    directory = Path(tempfile.mkdtemp(prefix="tailrace-"))
    try:
        path = f"{table.path}{new_object_name(txn.object_owner(), ending='segment')}"
        files = save(directory, trained, unevenness_of(quantizer, sample))
        size, checksum = write_archive(runtime.storage, path, files)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    centroids = Centroids(
        path=path,
        size=size,
        checksum=checksum,
        lists=len(trained),
        trained_rows=rows,
        probes=probes,
        # A large sample stands for all rows, until the index has grown.
        calibrated_rows=rows if len(sample) * _ENOUGH >= rows else len(sample),
    )
    with runtime.database.write() as connection:
        return segments.enter_centroids(connection, job_id, centroids)


def _sample(
    runtime: Runtime,
    definition: Definition,
    table: TableInfo,
    pieces: Sequence[RowRange],
) -> tuple[Vectors, int]:
    """Some vectors, and about how many there are."""
    (column,) = definition.columns_of(table)
    rows = sum(piece.rows for piece in pieces)
    wanted = sample_size(rows, definition.options.dimension)
    random = np.random.default_rng(1)
    groups = [
        piece
        for share in split(pieces, 1, runtime.settings.row_group_rows, whole_groups=True)
        for piece in share
        if piece.rows
    ]
    looked_at: list[RowRange] = []
    count = 0
    for number in random.permutation(len(groups)):
        if count >= wanted * _SPREAD and len(looked_at) >= _GROUPS:
            break
        looked_at.append(groups[number])
        count += groups[number].rows

    def take(number: int) -> tuple[int, list[Vectors]]:
        own, there, taken = np.random.default_rng(number), 0, []
        for _, rows in read(runtime.storage, looked_at[number], [column]):
            values = rows.column(column.name)
            if values.null_count:
                values = values.filter(pc.is_valid(values))
            there += len(values)
            some = np.flatnonzero(own.random(len(values)) < wanted / max(1, count))
            taken.append(to_vectors(values.take(some), definition.options.dimension))
        return there, taken

    every = each(take, list(range(len(looked_at))))
    nothing = np.empty((0, definition.options.dimension), np.float32)
    sample = np.concatenate([nothing, *(some for _, taken in every for some in taken)])
    there = sum(there for there, _ in every)
    return prepared(definition.options, sample), rows * there // max(1, count)


def _measured_probes(options: VectorOptions, quantizer: Any, sample: Vectors, rows: int) -> int:
    """How many lists to look at, by a sample of so many rows alone.

    Of the nearest rows, it has its share: so the fewer there are of them, the fewer of its own are
    asked for. A small sample is not to be trusted: maintenance tries again with all rows.
    """
    count = max(1, round(NEIGHBOURS * len(sample) / max(1, rows)))
    random = np.random.default_rng(2)
    own = np.sort(random.permutation(len(sample))[:SAMPLE_QUERIES])
    queries = sample[own]
    near = nearest(options, queries, sample, count + 1)
    _, found_lists = quantizer.search(sample[near.ravel()], 1)
    return probes_for(
        quantizer, queries, _of_others(near, own, found_lists.reshape(near.shape)), options.recall
    )


def _of_others(near: _Numbers, own: _Numbers, found_lists: _Numbers) -> _Numbers:
    """The lists of each query's neighbours; -1 for the query itself, which does not count."""
    is_own = near == own[:, None]
    is_own[~is_own.any(axis=1), -1] = True
    return np.where(is_own | (near < 0), -1, found_lists)


def load(definition: Definition, directory: Path) -> Any:
    """Centroids out of their files, as faiss uses them."""
    return flat_index(definition.options, np.load(directory / NAME))


def is_uneven(opener: Opener, snapshot: IndexSnapshot, centroids: Centroids) -> bool:
    """Whether rows that came since these were trained are in few of the lists."""
    sizes = np.zeros(centroids.lists, np.int64)
    for segment in snapshot.parts.segments:
        if segment.path and segment.centroids == centroids.id:
            sizes += np.bincount(opener.read(segment, read_lists), minlength=centroids.lists)
    at_first = opener.read(centroids, first_unevenness)
    return unevenness(sizes) > _UNEVEN * at_first


def calibrate(runtime: Runtime, reader: Reader, centroids: Centroids) -> None:
    """Measure with all vectors of an index how many lists a search has to look at."""
    options: VectorOptions = reader.snapshot.definition.options
    indexes = [one.index for one in reader.opened if one.centroids == centroids.id]
    total = sum(index.ntotal for index in indexes)
    if not total:
        return
    for index in indexes:
        index.make_direct_map()
    starts = np.cumsum([0, *(index.ntotal for index in indexes)])
    own = np.sort(np.random.default_rng(3).choice(total, min(total, QUERIES), replace=False))
    owners = np.searchsorted(starts, own, side="right") - 1
    chosen = [
        indexes[owner].reconstruct(int(number - starts[owner]))
        for owner, number in zip(owners, own, strict=True)
    ]
    queries = np.ascontiguousarray(np.stack(chosen), np.float32)
    every = faiss.SearchParametersIVF(nprobe=centroids.lists)
    scores, near, own_lists = [], [], []
    for start, index in zip(starts, indexes, strict=False):
        some, ids = index.search(queries, NEIGHBOURS + 1, params=every)
        scores.append(some if options.metric == L2 else -some)
        near.append(np.where(ids >= 0, ids + start, -1))
        places = faiss.vector_to_array(index.direct_map.array)  # the list, and where in it
        own_lists.append(places[np.maximum(ids, 0)] >> 32)
    best = np.argsort(np.hstack(scores), axis=1, kind="stable")[:, : NEIGHBOURS + 1]
    near_all, found_all = (
        np.take_along_axis(np.hstack(parts), best, axis=1) for parts in (near, own_lists)
    )
    probes = probes_for(
        indexes[0].quantizer, queries, _of_others(near_all, own, found_all), options.recall
    )
    with runtime.database.write() as connection:
        segments.calibrate(connection, centroids.id, probes=probes, rows=total)


def list_count(rows: int) -> int:
    """How many lists so many vectors are divided into."""
    return max(16, int(2 * math.sqrt(rows)))


def sample_size(rows: int, dimension: int) -> int:
    """How many vectors the centroids are found from."""
    return min(rows, list_count(rows) * _PER_LIST, _SAMPLE_BYTES // (4 * dimension))


def find_centroids(options: VectorOptions, sample: Vectors, rows: int) -> Vectors:
    """Find the centroids for so many rows from a sample of them."""
    lists = min(list_count(rows), max(1, len(sample) // 39))
    kmeans = faiss.Kmeans(
        options.dimension,
        lists,
        niter=_ROUNDS,
        seed=1,
        spherical=options.metric == COSINE,
        max_points_per_centroid=_PER_LIST,
    )
    kmeans.train(sample)
    centroids: Vectors = kmeans.centroids
    return centroids


def save(directory: Path, centroids: Vectors, sample_unevenness: float) -> list[Path]:
    """Write them to files, with how uneven the lists of the sample are."""
    np.save(directory / NAME, centroids)
    (directory / SAMPLE).write_text(json.dumps({"unevenness": sample_unevenness}))
    return [directory / NAME, directory / SAMPLE]


def first_unevenness(directory: Path) -> float:
    """How uneven the lists of the sample were."""
    return float(json.loads((directory / SAMPLE).read_text())["unevenness"])


def unevenness_of(quantizer: Any, sample: Vectors) -> float:
    """How uneven the lists of some vectors are."""
    some = np.ascontiguousarray(sample[:: -(-len(sample) // _COUNTED)])
    _, lists = quantizer.search(some, 1)
    return unevenness(np.bincount(lists.ravel(), minlength=quantizer.ntotal))


def unevenness(sizes: npt.NDArray[Any]) -> float:
    """How many times longer a search takes than with lists that are all of one size."""
    counts = sizes.astype(np.float64)
    return float(counts.size * (counts**2).sum() / max(1.0, counts.sum() ** 2))


def probes_for(
    quantizer: Any, queries: Vectors, neighbours: npt.NDArray[np.int64], recall: float
) -> int:
    """The least number of lists for a recall.

    `neighbours` are, for each query, the lists that its nearest vectors are in, and -1 where there
    is none. A search looks at lists from the nearest on: a vector is found as soon as its list is
    among them. So the places that these lists have tell the recall of any number of them.
    """
    lists = quantizer.ntotal
    _, order = quantizer.search(queries, lists)
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(lists, dtype=np.int64)[None, :], axis=1)
    there = neighbours >= 0
    needed = np.sort(np.take_along_axis(places, np.maximum(neighbours, 0), axis=1)[there])
    if not len(needed):
        return 1
    wanted = recall + (1 - recall) * _MARGIN
    return int(needed[min(len(needed), math.ceil(wanted * len(needed))) - 1]) + 1
