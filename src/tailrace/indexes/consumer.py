"""What keeps an index up to date: the consumers `fulltext` and `vector`.

Always true: an iteration adds segments of the inserted rows, and commits them together with the
watermark. Deleted rows need no work: a search asks the table which they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.errors import InvalidError
from tailrace.indexes import segment as segments
from tailrace.indexes.build import build
from tailrace.indexes.definition import KINDS, Definition
from tailrace.propagation.changes import Changes
from tailrace.propagation.consumer import Consumer, JobContext, register_consumer
from tailrace.propagation.job import RunKind
from tailrace.store.changes import INSERT, Feed
from tailrace.store.files import RowRange
from tailrace.store.schema import TableInfo

if TYPE_CHECKING:
    from tailrace.store.runtime import Runtime
    from tailrace.store.scan import Scan
    from tailrace.store.transaction import Transaction
    from tailrace.store.workspace import Commit


class IndexConsumer(Consumer):
    """Every kind of index; the definition in its options says which."""

    needs_maintenance = True
    goes_with_source = True

    def prepare(
        self, txn: Transaction, options: Mapping[str, Any], sources: Sequence[TableInfo]
    ) -> list[str]:
        if "column_ids" not in options or len(sources) != 1:
            raise InvalidError("an index is made by lake.create_index(…)")
        definition = Definition.from_spec(options)
        definition.kind.constrain(txn, sources[0], definition)
        return []

    def check_update(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        if old != new:
            raise InvalidError("what an index is cannot be changed: drop it and create another")

    def columns(
        self,
        options: Mapping[str, Any],
        memory: Mapping[str, Any],  # noqa: ARG002
        source: TableInfo,
    ) -> list[str]:
        return [column.name for column in Definition.from_spec(options).columns_of(source)]

    def run(self, changes: Changes, txn: Transaction, job: JobContext) -> str:
        (source,) = changes.values()
        definition = Definition.from_spec(job.options)
        runtime = txn.runtime
        pieces = _inserted(runtime, source.plan, job.to)
        rows = sum(piece.rows for piece in pieces)
        all_anew = changes.kind is RunKind.SNAPSHOT
        with runtime.database.read() as connection:
            centroids = segments.parts_at(connection, job.id, job.to).newest_centroids
        if all_anew:
            centroids = None
            if definition.kind.is_trained and rows > runtime.settings.exact_rows:
                from tailrace.indexes.vectors import training

                centroids = training.train(txn, job.id, definition, source.info, pieces)
        built = build(txn, definition, source.info, pieces, centroids)
        runtime.step("segments built")

        def enter(commit: Commit) -> None:
            connection = commit.connection
            segments.check_centroids(connection, centroids)
            if all_anew:
                segments.end_all(connection, job.id, job.to, runtime.clock.now())
            taken_in = segments.next_row_id(connection, source.info.id, job.to)
            segments.enter(connection, job.id, built, job.to, next_row_id=taken_in)

        txn.on_commit(enter)
        return "segments"

    def maintain(
        self,
        runtime: Runtime,
        begin: Callable[[], Transaction],
        job_id: int,
        stopped: Callable[[], bool],
        *,
        anew: bool = False,
    ) -> None:
        from tailrace.indexes.maintenance import Maintenance, maintain

        if anew:
            Maintenance(runtime, begin, job_id).rebuild()
        else:
            maintain(runtime, begin, job_id, stopped)

    def is_maintenance_due(self, runtime: Runtime, job_id: int) -> bool:
        from tailrace.indexes.maintenance import is_due

        return is_due(runtime, job_id)

    def dropping(
        self, txn: Transaction, options: Mapping[str, Any], sources: Sequence[TableInfo]
    ) -> None:
        definition = Definition.from_spec(options)
        for source in sources:
            definition.kind.release(txn, source, definition)


def _inserted(runtime: Runtime, plan: Feed | Scan, to: int) -> list[RowRange]:
    """The inserted rows, as pieces of their files."""
    if isinstance(plan, Feed):
        return [delta.rows for delta in plan.deltas if delta.change == INSERT]
    return [live.visible(runtime, to) for live in plan.files]


for name in KINDS:
    register_consumer(name, IndexConsumer())
