"""Consumers: the code of jobs, registered by the name that specs use.

A user's consumer is a function. The built-in kinds derive from `Consumer`, because they also create
tables.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.arguments import checked
from tailrace.errors import InvalidError
from tailrace.log import get_logger
from tailrace.store.names import check_name

if TYPE_CHECKING:
    from tailrace.propagation.changes import Changes
    from tailrace.store.runtime import Runtime
    from tailrace.store.schema import TableInfo
    from tailrace.store.transaction import Transaction

log = get_logger("tailrace.consumer")

# Names of columns, or those by table, or None for all.
Columns = Sequence[str] | Mapping[str, Sequence[str]] | None
Function = TypeVar("Function", bound=Callable[..., Any])


@checked
@dataclass(frozen=True, kw_only=True)
class JobContext:
    """What a consumer is told about its job."""

    id: int
    name: str
    table: str  # the table that it is named under
    tenant: str
    lake: str  # an id of the lake
    options: Mapping[str, Any]  # the spec's "consumer"
    since: int | None  # None at the first run
    to: int
    # The changes since `since` were purged: it gets all rows, and must replace its output.
    rebuilds: bool = False
    # What the consumer remembers from one iteration to the next, as JSON: stored in the same commit
    # as its output.
    memory: dict[str, Any] = field(default_factory=dict)
    is_canceled: Callable[[], bool] = lambda: False
    owned: list[str] = field(default_factory=list)  # see `owns`
    # Rows that the consumer has read besides the changes, for the history.
    counted: list[int] = field(default_factory=list)

    def owns(self, table: str) -> None:
        """Declare a table that this run creates as derived: closed to users, dropped with the job.

        As if `Consumer.prepare` had created it.
        """
        self.owned.append(table)

    @property
    def idempotency_key(self) -> str:
        """A key for outside systems: the same for every try of an iteration, and for no other."""
        since = "new" if self.since is None else f"{self.since}{'-anew' if self.rebuilds else ''}"
        return f"{self.lake}-{self.id}-{since}-{self.to}"


class Consumer:
    """Turns changes into output."""

    # Whether `maintain` ever has something to do.
    needs_maintenance = False
    # Whether a range that failed is retried as it was: outside systems may have heard of it.
    repeats_ranges = True
    # Whether its jobs may share a commit with others of their iteration: they write to nothing but
    # tables of their own, and to no outside system, so that a run can be done again.
    shares_commits = False
    # Whether changes come with the snapshot of each row.
    snapshots = False
    # Whether its jobs are dropped with their source, instead of being left with an error.
    goes_with_source = False
    # What its jobs are called, if a table can't be dropped while they follow it.
    holds_sources: str | None = None

    def prepare(
        self,
        txn: Transaction,  # noqa: ARG002
        options: Mapping[str, Any],  # noqa: ARG002
        sources: Sequence[TableInfo],  # noqa: ARG002
    ) -> list[str]:
        """Check a new job's options and create the tables that it derives; returns their names."""
        return []

    def check_update(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Refuse options that can't be changed while the job lives."""

    def columns(
        self,
        options: Mapping[str, Any],  # noqa: ARG002
        memory: Mapping[str, Any],  # noqa: ARG002
        source: TableInfo,  # noqa: ARG002
    ) -> list[str] | None:
        """The columns of a source that it needs, besides the key; None for all."""
        return None

    def run(self, changes: Changes, txn: Transaction, job: JobContext) -> str | None:
        """Apply the changes through `txn`; may return its strategy, for the history."""
        raise NotImplementedError

    def maintain(
        self,
        runtime: Runtime,
        begin: Callable[[], Transaction],
        job_id: int,
        stopped: Callable[[], bool],
        *,
        anew: bool = False,
    ) -> None:
        """Maintain what a job has created, or make it `anew`: a task of its own, on one node.

        It returns at the next opportunity when `stopped`.
        """

    def is_maintenance_due(self, runtime: Runtime, job_id: int) -> bool:  # noqa: ARG002
        """Whether `maintain` has something to do; asked after iterations."""
        return False

    def dropping(
        self, txn: Transaction, options: Mapping[str, Any], sources: Sequence[TableInfo]
    ) -> None:
        """Undo what `prepare` did to the sources, in the transaction that drops a job."""


class FunctionConsumer(Consumer):
    """A user's function."""

    def __init__(
        self, function: Callable[..., Any], columns: Columns, *, snapshots: bool = False
    ) -> None:
        self._function, self._columns, self.snapshots = function, columns, snapshots

    def columns(
        self,
        options: Mapping[str, Any],  # noqa: ARG002
        memory: Mapping[str, Any],  # noqa: ARG002
        source: TableInfo,
    ) -> list[str] | None:
        wanted = self._columns
        if isinstance(wanted, Mapping):
            wanted = wanted.get(source.full_name)
        return None if wanted is None else list(wanted)

    def run(self, changes: Changes, txn: Transaction, job: JobContext) -> str | None:
        self._function(changes, txn, job)
        return None


_registered: dict[str, Consumer] = {}
# Modules that register a consumer when they are imported: done when a job first needs it.
_modules: dict[str, str] = {}
_broken: dict[str, str] = {}  # kinds whose modules cannot be imported, and why


@checked
def consumer(
    name: str | object, *, columns: Columns = None, snapshots: bool = False
) -> Callable[[Function], Function]:
    """Register a function as the consumer of that name.

    `columns` are the columns of the source that it needs (with several sources, a dict by table);
    by default all. With `snapshots`, rows begin with `_snapshot`, the number of the snapshot that
    inserted or deleted each; at a first run, of the one that is read.

        @tailrace.consumer("audit")
        def audit(changes, txn, job):
            txn.table("audit").append(changes.inserts)
    """
    if not isinstance(name, str):  # @tailrace.consumer without a name
        raise InvalidError('a consumer needs a name: @tailrace.consumer("audit")')
    check_name(name, "consumer")

    def register(function: Function) -> Function:
        if name in _modules or not isinstance(_registered.get(name), FunctionConsumer | None):
            raise InvalidError(f"{name!r} is a built-in kind: choose another name")
        _check_function(name, function)
        register_consumer(name, FunctionConsumer(function, columns, snapshots=snapshots))
        return function

    return register


def _check_function(name: str, function: Callable[..., Any]) -> None:
    """Refuse generators and coroutines: they would do nothing, and yet count as successful."""
    kinds = (
        inspect.isgeneratorfunction,
        inspect.iscoroutinefunction,
        inspect.isasyncgenfunction,
    )
    if any(is_kind(function) for is_kind in kinds):
        raise InvalidError(f"the consumer {name!r} must be a plain function: no yield, no async")
    try:
        inspect.signature(function).bind("changes", "txn", "job")
    except TypeError as error:
        raise InvalidError(
            f"the consumer {name!r} is called as {name}(changes, txn, job)"
        ) from error
    except ValueError:
        pass  # a function in C without a signature


def register_consumer(name: str, consumer: Consumer) -> None:
    """Make a consumer known in this process."""
    _registered[name] = consumer


def register_module(kind: str, module: str) -> None:
    """Name the module that registers the consumer of a built-in kind."""
    _modules[kind] = module


def find_consumer(kind: str) -> Consumer | None:
    """The consumer of that name, if this process has it."""
    if kind not in _registered and kind in _modules and kind not in _broken:
        try:
            import_module(_modules[kind])
        except ImportError as error:  # its jobs are left alone here, and the others go on
            _broken[kind] = str(error)
            log.warning("consumer cannot be imported", kind=kind, error=str(error))
    return _registered.get(kind)


def is_broken(kind: str) -> bool:
    """Whether a built-in consumer cannot be imported here."""
    return kind in _broken


def why_missing(kind: str) -> str:
    """Why this process does not have a consumer."""
    if kind in _broken:
        return f"the consumer {kind!r} cannot be imported ({_broken[kind]})"
    return f"no consumer {kind!r} is known"


def known_consumers() -> list[str]:
    """The names of all."""
    return sorted({*_registered, *_modules})


_thread = threading.local()


@contextmanager
def consuming(job: str) -> Iterator[None]:
    """Mark this thread as running a job's consumer."""
    _thread.job = job
    try:
        yield
    finally:
        _thread.job = None


def check_outside(call: str) -> None:
    """Refuse a call from inside of a consumer: it would wait for its own iteration."""
    job = getattr(_thread, "job", None)
    if job is not None:
        raise InvalidError(f"{call} inside of the consumer of {job} would wait for itself")
