"""Whether this node can work at all. If not, it *stands back*: it leaves the jobs to other nodes.

Always true: a failure is the node's own only if a check of the node says so: its Spark does not
work, or its disk is full. Then the job is not blamed, and keeps its place. Meanwhile the node
begins nothing if another node is well; alone, it goes on with jobs that have not failed by this
fault. It repairs what it can, and then works again by itself.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tailrace.log import get_logger
from tailrace.propagation.node import Node
from tailrace.store.runtime import Runtime
from tailrace.store.spark_session import SILENT, SparkGoneError

log = get_logger("tailrace.health")

# Seconds between checks of a healthy node; and at most between attempts to repair one.
_LOOK, _LONGEST = 2.0, 8.0
# Seconds to wait for the thread at the end.
_PATIENCE = 30.0
# Seconds for which a consumer that lacks a module is left to other nodes.
_ASIDE = 60.0
# Bytes that must fit on a disk.
_ROOM = 1024 * 1024


class Health:
    """What is wrong with this node, if anything."""

    def __init__(
        self,
        runtime: Runtime,
        node: Node,
        *,
        watching: bool = True,
        changed: Callable[[], None] = lambda: None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when the node stands back or works again; `lost` when nothing that
        runs can go on. Without `watching` somebody is waiting for the jobs and will be told of
        faults: the node never stands back.
        """
        self._watching = watching
        self._runtime, self._node, self._changed, self._lost = runtime, node, changed, lost
        self.fault: str | None = None
        self._is_alone = True  # no other node can do the work
        self._failed: set[int] = set()  # jobs that failed by this fault
        self._set_aside: dict[str, float] = {}  # kinds of consumers, and until when
        self._lock = threading.Lock()
        self._nudge = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Watch the node on a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="tailrace-health", daemon=True)
        self._thread.start()

    def may_begin(self, job_id: int) -> bool:
        """Whether a job may begin here."""
        return self.fault is None or (self._is_alone and job_id not in self._failed)

    def knows(self, kind: str) -> bool:
        """Whether a consumer works here: not for a while if it lacked a module."""
        return time.monotonic() >= self._set_aside.get(kind, 0.0)

    def leaves(self, error: BaseException, kind: str) -> bool:
        """Whether a consumer's jobs are left to other nodes, which may have the module it lacks."""
        if not isinstance(error, ImportError) or not self._watching:
            return False
        if not self._node.others_are_well():
            return False
        self._set_aside[kind] = time.monotonic() + _ASIDE
        log.warning("consumer set aside", node=self._node.id, kind=kind, error=repr(error)[:500])
        return True

    def blame(self, job_id: int) -> str | None:
        """What is wrong with the node on which a job has just failed, if anything.

        The job's error is not consulted: a consumer words its errors as it likes.
        """
        reason = self._examine()
        if reason is not None and self._watching:
            with self._lock:
                self._failed.add(job_id)
            self._stand_back(reason)
        return reason

    def _examine(self) -> str | None:
        return self._runtime.spark.examine() or self._disk()

    def _disk(self) -> str | None:
        """What is wrong with the places where this process writes."""
        places = {Path(tempfile.gettempdir())}
        if self._runtime.storage.local is not None:
            places.add(self._runtime.storage.local)
        for place in sorted(places):
            try:
                with tempfile.TemporaryFile(dir=place) as file:
                    file.write(b"\0" * _ROOM)
                    file.flush()
            except OSError as error:
                return f"nothing can be written to {place}: {error.strerror}"
        return None

    # --- in the background ------------------------------------------------------------------

    def _run(self) -> None:
        pause = _LOOK
        while True:
            self._nudge.wait(pause)
            self._nudge.clear()
            if self._closed:
                return
            try:
                pause = _LOOK if self._turn() else min(2 * pause, _LONGEST)
            except Exception as error:  # noqa: BLE001  (of all threads, this one has to go on)
                log.warning("health not known", error=repr(error)[:500])

    def _turn(self) -> bool:
        """Check or repair; returns whether the node is well."""
        spark = self._runtime.spark
        if self.fault is None:
            # Only what costs nothing: whether the JVM is there.
            reason = spark.glance()
            if reason is None:
                return True
            self._stand_back(reason)
        reason = self._repair()
        if reason is None:
            self._begin_again()
            return True
        self._stand_back(reason)
        return False

    def _repair(self) -> str | None:
        """Restart Spark if it is lost; returns what is still wrong."""
        if self._runtime.spark.is_lost:
            try:
                self._runtime.spark()
            except SparkGoneError as error:
                return str(error)
        return self._examine()

    def _stand_back(self, reason: str) -> None:
        with self._lock:
            is_new, self.fault = self.fault is None, reason
        is_alone = not self._node.others_are_well()
        is_other = is_alone != self._is_alone
        self._is_alone = is_alone
        self._node.say(reason)
        if is_new:
            log.warning("this node stands back", node=self._node.id, reason=reason)
            if self._runtime.spark.fault == reason and not reason.startswith(SILENT):
                self._lost()
            self._nudge.set()
        if is_new or is_other:
            self._changed()

    def _begin_again(self) -> None:
        with self._lock:
            self.fault = None
            self._failed.clear()
        log.info("this node works again", node=self._node.id)
        self._node.say(None)
        self._changed()

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._nudge.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE)  # it may be starting Spark
