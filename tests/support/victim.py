"""Work that a test has killed half-way: what it does, and how it dies."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from tailrace import errors
from tailrace.catalog.database import Database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import tailrace
    from tests.support.lakes import LakeArgs

# Not a step of the store's own: an object of which only the beginning has been written.
HALF_WRITTEN = "half written"
# How a process ends that was told that its work no longer counts.
REFUSED = 8


def run(
    args: LakeArgs,
    work: Callable[..., object],
    arguments: tuple[Any, ...],
    step: str,
    nth: int,
    settings: tailrace.Settings | None = None,
    how: signal.Signals = signal.SIGKILL,
) -> None:
    """Do `work(lake, *arguments)`, and die when a step is reached for the nth time.

    Or get another signal: SIGSTOP freezes the process there.
    """
    reached = itertools.count(1)

    def on_step(name: str) -> None:
        if name == step and next(reached) == nth:
            with _writing:
                os.kill(os.getpid(), how)

    if how == signal.SIGSTOP:
        _write_one_at_a_time()
    if step == HALF_WRITTEN:
        _announce_half_written(on_step)
    with args.connect(on_step=on_step, settings=settings) as lake:
        work(lake, *arguments)


# Held by the thread that writes to the catalog, in a process that is going to be frozen.
_writing = threading.RLock()


def _write_one_at_a_time() -> None:
    """Let no other thread be in the middle of a transaction when this process is frozen.

    A heartbeat's, say: then SQLite would be locked for everybody.
    """
    transaction, write_one = Database._transaction, Database.write_one

    @contextmanager
    def transaction_alone(self: Database, **options: Any) -> Iterator[Any]:
        with _writing, transaction(self, **options) as connection:
            yield connection

    def write_one_alone(self: Database, *arguments: Any) -> None:
        with _writing:
            write_one(self, *arguments)

    Database._transaction = transaction_alone
    Database.write_one = write_one_alone


def _announce_half_written(on_step: Callable[[str], None]) -> None:
    write = pq.ParquetWriter.write_table

    def write_table(self: Any, *arguments: Any, **options: Any) -> None:
        write(self, *arguments, **options)
        on_step(HALF_WRITTEN)

    pq.ParquetWriter.write_table = write_table


def several_writes(lake: tailrace.Lake, number: int) -> None:
    """One transaction of every kind of write, on the tables `account`, `log` and a new one."""
    first = 10 * number
    with lake.transaction() as txn:
        txn.table("log").append([{"n": number, "text": "moved"}])
        account = txn.table("account")
        account.upsert([{"id": first, "v": "new"}, {"id": first + 9, "v": "new"}])
        account.delete([{"id": first + 1}])
        txn.create_table(f"extra_{number}", {"n": "bigint"}).append([{"n": number}])
        # Changed once more: this file of the transaction itself gets a delete file.
        account.upsert([{"id": first + 9, "v": "newer"}])


def told_writes(lake: tailrace.Lake, number: int) -> None:
    """The same; the process ends with 7 if it was told that nothing was done."""
    try:
        several_writes(lake, number)
    except (errors.UnavailableError, errors.ConflictError):
        os._exit(7)


def give_up(lake: tailrace.Lake, number: int) -> None:
    """Write, and then think better of it."""
    txn = lake.transaction()
    txn.table("log").append([{"n": number, "text": "never"}])
    txn.rollback()


def sweep(lake: tailrace.Lake) -> None:
    """Clean up."""
    lake.sweep()


def told_sweep(lake: tailrace.Lake) -> None:
    """The same; the process ends with REFUSED if another has done it meanwhile."""
    from tailrace.store.tasks import TaskStoppedError

    try:
        lake.sweep()
    except TaskStoppedError:
        os._exit(REFUSED)


def maintain(lake: tailrace.Lake) -> None:
    """Compact a table."""
    lake.maintain("t")


def told_maintain(lake: tailrace.Lake) -> None:
    """The same; the process ends with `REFUSED` if it was told that it must not."""
    try:
        lake.maintain("t")
    except (errors.UnavailableError, errors.ConflictError):
        os._exit(REFUSED)


def purge(lake: tailrace.Lake) -> None:
    """Remove what is old."""
    lake.purge()


def create_and_die(args: LakeArgs) -> None:
    """Create a lake, and die before its catalog is complete."""
    from tailrace.catalog import ducklake

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    ducklake.enter_first_rows = die
    args.connect()


def run_with_environment(environment: dict[str, str], *arguments: Any) -> None:
    """The same with variables set: a forked process has those of its server."""
    os.environ.update(environment)
    run(*arguments)
