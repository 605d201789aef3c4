"""Takes up tasks, and runs them beside the iterations, on a few threads of their own.

Always true: a node runs a task only between a claim, which raised its epoch, and the end that it
enters for it. If the node dies, others take its tasks over; if it only slept, what it writes later
is refused. What is to be done is found by `monitor`, and done by `task_types`; here is who does it
when, and what becomes of one that fails.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import sqlalchemy as sa

from tailrace.catalog.database import Together
from tailrace.errors import TailraceError, UnavailableError
from tailrace.log import get_logger
from tailrace.propagation import retry
from tailrace.propagation.job import Job
from tailrace.propagation.monitor import Monitor
from tailrace.propagation.node import Node
from tailrace.propagation.task_types import TYPES, TaskContext, TaskResult
from tailrace.store import tasks
from tailrace.store.runtime import Runtime
from tailrace.store.tasks import Choice, NewTask, Task, TaskStoppedError
from tailrace.store.transaction import Heartbeat

log = get_logger("tailrace.maintenance")

# Seconds between two looks at least, so that many small commits do not make many of them; and at
# most, for tasks that wait for their next try, and those of nodes that are gone.
_OFTEN, _SELDOM = 0.5, 5.0
# Seconds after which one who waits for a task of others looks again, whatever was heard.
_POLL = 0.1

Observe = Callable[[Task, str, TaskResult], None]


class Executor:
    """Claims and runs tasks in the name of a node."""

    def __init__(
        self,
        runtime: Runtime,
        heartbeat: Heartbeat,
        node_id: str,
        live: Callable[[sa.Connection], Collection[str]],
        observe: Observe = lambda _task, _outcome, _result: None,
    ) -> None:
        """`observe` is told how each has ended: done, failed, or to be tried again."""
        self._runtime, self._heartbeat = runtime, heartbeat
        self._node_id, self._live, self._observe = node_id, live, observe
        self._random = Random()  # noqa: S311  (not for secrets)
        self._lock = threading.Lock()
        self.running: dict[int, tuple[Task, threading.Event]] = {}

    def claim(
        self,
        types: Collection[str] | None = None,
        only: Collection[int] | None = None,
        *,
        at_once: bool = False,
    ) -> Task | None:
        """Take the most urgent task, of some types or among some; None if there is none."""
        database, now = self._runtime.database, self._runtime.clock.now()
        choice = Choice(types=TYPES if types is None else types, only=only, at_once=at_once)
        with database.read() as connection:  # mostly there is none, and nobody has to wait
            if tasks.most_urgent(connection, choice, now, self._live) is None:
                return None
        most = self._runtime.settings.retry_limit
        # Nobody shall find it claimed and not yet running.
        with self._lock, database.lock() as connection:
            task = tasks.claim(
                connection, choice, self._node_id, now, self._live, most_attempts=most
            )
            if task is not None:
                self.running[task.id] = task, threading.Event()
        return task

    def run(
        self,
        task: Task,
        *,
        stop: threading.Event | None = None,
        is_late: Callable[[], bool] = lambda: False,
    ) -> TaskResult | None:
        """Run a task that was claimed; its result, or None if it was interrupted.

        An error is raised again after it was entered with the task.
        """
        stop = stop or threading.Event()
        with self._lock:
            self.running[task.id] = task, stop
        began = time.monotonic()
        try:
            self._runtime.step("task claimed")
            result = self._run(task, stop, is_late)
        except Exception as error:
            self._failed(task, error)
            raise
        finally:
            with self._lock:
                self.running.pop(task.id, None)
        if result is not None:
            self._observe(task, "done", result)
            log.info("task", **_fields(task), seconds=round(time.monotonic() - began, 3))
        return result

    def _run(
        self, task: Task, stop: threading.Event, is_late: Callable[[], bool]
    ) -> TaskResult | None:
        runtime = self._runtime
        with runtime.database.read() as connection:
            tenant = tasks.owner(connection, task.scope)

        def work_off(type_: str) -> Sequence[TaskResult]:
            done = []
            while not stop.is_set() and (part := self.claim([type_])):
                try:
                    result = self.run(part, stop=stop)
                except TailraceError:  # entered with the part, which others try again
                    continue
                done += [] if result is None else [result]
            return done

        context = TaskContext(
            runtime=runtime.of_tenant(tenant),
            task=task,
            heartbeat=self._heartbeat,
            stop=stop,
            is_late=is_late,
            work_off=work_off,
        )
        result = TYPES[task.type].run(context)
        runtime.step("task worked")
        if not context.is_complete:
            with runtime.database.lock() as connection:  # which tells those who wait for it
                if context.stopped():
                    tasks.release(connection, task, runtime.clock.now())
                    return None
                context.finish(Together(connection), result)
        runtime.step("task done")
        return result

    def _failed(self, task: Task, error: Exception) -> None:
        """Enter a failure: the task waits for its next try, or has failed for good."""
        if isinstance(error, TaskStoppedError):
            log.info("task stopped", **_fields(task))
            return
        if self._runtime.database.is_outdated:  # newer nodes take it over
            return
        settings, now = self._runtime.settings, self._runtime.clock.now()
        code = retry.final_code(retry.code_of(error), task.attempts, settings)
        for_good = retry.is_permanent(code)
        pause = retry.pause(task.attempts, settings, self._random, error)
        log.warning("task failed", **_fields(task), for_good=for_good, error=repr(error)[:500])
        self._observe(task, "failed" if for_good else "tried again", {})
        try:
            with self._runtime.database.write() as connection:
                message, again = retry.message_of(error), None if for_good else now + pause
                tasks.fail(connection, task, message, now, again)
        except UnavailableError as away:  # `heal` releases it once the catalog is back
            log.warning("failure of a task not entered", **_fields(task), error=repr(away)[:500])

    def heal(self) -> None:
        """Stop what was canceled or taken over; release what ended and could not be entered."""
        with self._lock, self._runtime.database.read() as connection:
            known = tasks.running(connection, self._node_id, self.running)
            for task in known:
                if task.id in self.running and self.running[task.id][0].epoch != task.epoch:
                    self.running[task.id][1].set()
            lost = [task for task in known if task.id not in self.running]
        for task in lost:
            with self._runtime.database.write() as connection:
                tasks.release(connection, task, self._runtime.clock.now())


def _fields(task: Task) -> Mapping[str, object]:
    scope = task.scope
    return {"task_id": task.id, "type": task.type, "table_id": scope.table, "job_id": scope.job}


def do_now(runtime: Runtime, heartbeat: Heartbeat, new: NewTask) -> TaskResult:
    """Do a task here and now, after those that are in its way; returns its result.

    One that waits already is done in its place. What others run is waited for; what nobody runs,
    is run.
    """
    node = Node(runtime, serves=False)
    changed = threading.Event()
    end_listening = runtime.database.listen(changed.set)
    executor = Executor(runtime, heartbeat, node.id, node.live)
    try:
        while True:
            changed.clear()
            with runtime.database.lock() as connection:
                (entered,) = tasks.enter(connection, [new], runtime.clock.now())
            own = {task.id for task in entered.others if _is_same(task, new)}
            if entered.id is not None:
                own = {entered.id}
            task = executor.claim(only=own or {task.id for task in entered.others}, at_once=True)
            if task is None:
                changed.wait(_POLL)
                continue
            result = executor.run(task)
            if task.id in own and result is not None:
                return result
    finally:
        end_listening()
        node.close()


def _is_same(task: Task, new: NewTask) -> bool:
    return (task.type, task.scope, task.spec) == (new.type, new.scope, new.spec)


@dataclass(frozen=True, kw_only=True)
class InState:
    """The tasks of the lake in one state."""

    tasks: int
    age: float  # of the oldest, in seconds


@dataclass(kw_only=True)
class Counts:
    """What a node's tasks have done, for its metrics."""

    ended: Counter[tuple[str, str]] = field(default_factory=Counter)  # by type and outcome
    rows: Counter[str] = field(default_factory=Counter)  # rewritten, by type
    bytes: Counter[str] = field(default_factory=Counter)

    def observe(self, task: Task, outcome: str, result: TaskResult) -> None:
        """Count one that has ended."""
        self.ended[task.type, outcome] += 1
        self.rows[task.type] += int(result.get("rows", 0))
        self.bytes[task.type] += int(result.get("bytes", 0))


class Maintenance:
    """The tasks of a node: finds what is due, and runs as many at once as it has workers."""

    def __init__(
        self,
        runtime: Runtime,
        heartbeat: Heartbeat,
        node: Node,
        *,
        may_begin: Callable[[], bool] = lambda: True,
        seen: int | None = None,
    ) -> None:
        """`may_begin` is asked before a task is taken. `seen`: as `Monitor` has it."""
        self._runtime, self._may_begin = runtime, may_begin
        self.counts = Counts()
        self.executor = Executor(runtime, heartbeat, node.id, node.live, self.counts.observe)
        self.monitor = Monitor(runtime, seen=seen)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._is_hour = False
        self._workers: dict[threading.Thread, threading.Event] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def note(self, job: Job) -> None:
        """Note a job that has finished an iteration, or is seen for the first time."""
        self.monitor.note(job)

    def wake(self, *, hourly: bool = False) -> None:
        """Something may have changed: look again soon. Costs nothing."""
        self._is_hour |= hourly
        self._wake.set()

    def states(self) -> dict[str, InState]:
        """How many tasks the lake has in which state: those that are open, or have failed."""
        now = self._runtime.clock.now()
        with self._runtime.database.read() as connection:
            return {
                state: InState(tasks=count, age=max(0.0, (now - oldest).total_seconds()))
                for state, count, oldest in tasks.counts(connection)
            }

    # --- in the background ------------------------------------------------------------------

    def start(self) -> None:
        """Look and work on threads of its own, until it is closed."""
        self._thread = threading.Thread(target=self._loop, name="tailrace-monitor", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(_SELDOM)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  (the catalog is away: it may come back)
                log.warning("monitor failed", error=repr(error)[:500])
            self._stop.wait(_OFTEN)

    def _look(self) -> None:
        self.executor.heal()
        if self._is_hour:
            self.monitor.keep_house()
            self._is_hour = False
        self.monitor.look()
        self._assign()

    def _assign(self) -> None:
        """Start as many tasks as there are workers for."""
        while self._may_begin() and not self._runtime.database.is_outdated:
            with self._lock:
                if self._stop.is_set() or len(self._workers) >= self._most():
                    return
            task = self.executor.claim()
            if task is None:
                return
            stop = threading.Event()
            worker = threading.Thread(
                target=self._work, args=(task, stop), name="tailrace-maintenance", daemon=True
            )
            with self._lock:
                self._workers[worker] = stop
                if self._stop.is_set():
                    stop.set()  # it releases the task
            worker.start()

    def _most(self) -> int:
        return self._runtime.settings.maintenance_workers

    def _work(self, task: Task, stop: threading.Event) -> None:
        try:
            self._run(task, stop)
        finally:
            with self._lock:
                self._workers.pop(threading.current_thread(), None)
            self.monitor.ended(task.scope.table)
            self._wake.set()

    def _run(
        self, task: Task, stop: threading.Event, is_late: Callable[[], bool] = lambda: False
    ) -> None:
        # A type may raise anything; it was entered with the task, and logged.
        with suppress(Exception):
            self.executor.run(task, stop=stop, is_late=is_late)

    def close(self) -> None:
        """Start nothing more, have what runs end soon, and wait for it."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            workers = dict(self._workers)
        for stop in workers.values():
            stop.set()
        for worker in workers:
            worker.join()

    # --- for one who waits ------------------------------------------------------------------

    def run(self, deadline: float | None = None, *, tables: bool = True) -> None:
        """Do what is due after this service's work; what is left at the deadline waits for later.

        Only what this one has found: other tasks are not what is waited for; without `tables`, only
        for its jobs. Nothing, if this process leaves maintenance to others.
        """
        if not self._most():
            return

        def is_late() -> bool:
            return deadline is not None and time.monotonic() >= deadline

        ids: set[int] = set()
        for entered in self.monitor.look(tables=tables):
            ids |= {task.id for task in entered.others}
            ids |= set() if entered.id is None else {entered.id}
        while ids and not is_late() and not self._stop.is_set():
            task = self.executor.claim(only=ids)
            if task is None:
                break
            self._run(task, self._stop, is_late)
        if self._is_hour:
            self.monitor.store()
