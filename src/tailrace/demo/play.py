"""The demo from beginning to end: a shop, what is derived from it, a live part, and the proof.

Always true: the shop is made in one transaction and everything else as jobs of the lake, so that
a demo that was killed anywhere goes on when it is started again with the same directory.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.address import CATALOG_FILE
from tailrace.cli.spark import in_background
from tailrace.demo import derived, display, shop
from tailrace.demo.child import Child, start_from
from tailrace.demo.freshness import Watcher, refreshes
from tailrace.demo.results import (
    Cost,
    Live,
    Recomputes,
    Result,
    check_all,
    cpu_instead,
    cpu_seconds,
    document,
)
from tailrace.demo.searches import typical_seconds
from tailrace.demo.terminal import Screen, closing, first_only_sets, quietly, terminable
from tailrace.errors import InvalidError, JobFailedError, UnavailableError
from tailrace.lake import Lake, connect
from tailrace.propagation.job import State
from tailrace.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.propagation.status import JobStatus

_COMMITS_PER_SECOND = 4.0
_LOOK = 0.3  # seconds between two looks at the builds
_PATIENCE = 300.0  # seconds for the builds, and for the last refreshes
_SUBMIT = "--driver-java-options -XX:TieredStopAtLevel=1 pyspark-shell"
# Small refreshes are Python's work: more at once would only slow each other down.
_SETTINGS = Settings(workers=2)
# Work of a killed demo is taken over sooner than would be good for a busy cluster.
_NODE_TIMEOUT = timedelta(seconds=6)


def play(*, seconds: float, scale: float, keep: str | Path | None, output: str) -> int:
    """Run the demo; see `tailrace.demo.run`."""
    if output not in {"text", "json"}:
        raise InvalidError(f"the demo's output is text or json, not {output!r}")
    if not 1 <= seconds <= 86_400:
        raise InvalidError(f"the live part takes from 1 second to a day, not {seconds:g} seconds")
    sizes = shop.Sizes.of(scale)
    try:
        with terminable(), quietly() as stderr, _place(keep) as place:
            screen = Screen(stderr if output == "json" else sys.stdout)
            try:
                with closing(connect(place, settings=_SETTINGS)) as lake:
                    lake.configure(node_timeout=_NODE_TIMEOUT)
                    demo = _Play(screen, lake, place, is_kept=keep is not None)
                    result = demo.run(sizes, seconds)
            except KeyboardInterrupt:
                screen.say("Stopped." if keep is None else f"Stopped: {place} can go on any time.")
                raise
            if output == "json":
                print(json.dumps(result, indent=2))
            return 0 if result["ok"] else 1
    except KeyboardInterrupt:
        # Nothing is waited for, neither threads nor Spark, which ends with this process.
        sys.stdout.flush()
        os._exit(130)


@contextmanager
def _place(keep: str | Path | None) -> Iterator[Path]:
    if keep is None:
        with (
            tempfile.TemporaryDirectory(
                prefix="tailrace-demo-", ignore_cleanup_errors=True
            ) as directory,
            _cache(Path(directory) / "cache"),
        ):
            yield Path(directory) / "shop.lake"
        return
    place = Path(keep).expanduser()
    if place.is_dir() and any(place.iterdir()) and not (place / CATALOG_FILE).exists():
        raise InvalidError(f"{place} has other files in it: give --keep a new directory")
    yield place


@contextmanager
def _cache(directory: Path) -> Iterator[None]:
    """Cached segments of a temporary lake are temporary, too, unless the user says otherwise."""
    if "TAILRACE_CACHE" in os.environ:
        yield
        return
    os.environ["TAILRACE_CACHE"] = str(directory)
    try:
        yield
    finally:
        del os.environ["TAILRACE_CACHE"]


class _Play:
    """One run: each scene is a method, in the order of the file."""

    def __init__(self, screen: Screen, lake: Lake, place: Path, *, is_kept: bool) -> None:
        self._screen, self._lake, self._place, self._is_kept = screen, lake, place, is_kept
        self._began = time.monotonic()
        self._is_new = False
        self._began_at = self._live_from = lake.snapshot
        self._cpu = 0.0  # seconds when the live part began

    def run(self, sizes: shop.Sizes, seconds: float) -> dict[str, Any]:
        """Play all scenes; returns the results as a document."""
        spark = in_background(self._start_spark)
        rows = self._shop(sizes, spark)
        child = Child(self._place, rate=_COMMITS_PER_SECOND)
        try:
            with closing(self._lake.serving()):
                self._derive()
                since, passed = datetime.now(UTC), self._live(child, seconds)
            live = Live(
                since=since,
                until=datetime.now(UTC),
                seconds=passed,
                cpu_seconds=cpu_seconds(self._lake) - self._cpu,
                commits=tuple(child.commits),
                searches=tuple(self._watcher.searcher.done),
            )
            recomputes = self._recompute(child)
            self._settle(child)
        finally:
            child.end()
        results = self._results(live, recomputes)
        self._screen.phase("Try next", display.NEXT_KEPT if self._is_kept else display.NEXT)
        for command in display.commands(self._place if self._is_kept else None):
            self._screen.command(command)
        return document(
            results=results,
            live=live,
            lake=str(self._place) if self._is_kept else None,
            is_new=self._is_new,
            rows=rows,
            began_at=self._began_at,
            seconds=time.monotonic() - self._began,
        )

    def _start_spark(self) -> SparkSession:
        """Start Spark, which takes seconds."""
        # For a run this short: the JVM's better compiler takes more of two cores than it gives.
        # Recomputes took about as long without it, at scales 1 and 6.
        os.environ.setdefault("PYSPARK_SUBMIT_ARGS", _SUBMIT)
        return self._lake.spark

    def _shop(self, sizes: shop.Sizes, spark: Future[SparkSession]) -> dict[str, int]:
        screen, lake = self._screen, self._lake
        self._is_new = not shop.is_there(lake)
        screen.phase("A shop", display.SHOP if self._is_new else display.SHOP_THERE)
        if self._is_new:
            began = time.monotonic()
            rows = shop.create(lake, sizes)
            took = f"{time.monotonic() - began:.1f} s"
            screen.say(f"{display.counted(rows)}, in one transaction: {took}")
        with screen.working("Spark starts", "Spark has started"):
            try:
                spark.result()
            except Exception as error:
                reason = str(error.__cause__ or error).splitlines()[0]
                raise UnavailableError(
                    f"Spark did not start ({reason}): it needs Java 17 or newer; "
                    "tailrace doctor says what is missing"
                ) from error
        if not self._is_new:
            rows = {name: lake.table(name).to_df().count() for name in shop.TABLES}
            screen.say(f"{display.counted(rows)}, at snapshot {lake.snapshot}")
        return rows

    def _derive(self) -> None:
        screen, lake = self._screen, self._lake
        screen.phase("What is derived from it", display.DERIVED)
        screen.show(display.derived())
        derived.create(lake)
        deadline = time.monotonic() + _PATIENCE
        with screen.working("They are built", "All are built") as tell:
            while waiting := self._unbuilt():
                failed = [job for job in waiting if job.state is State.ERROR]
                if failed or time.monotonic() > deadline:
                    names = ", ".join(f"{job.table} ({job.error})" for job in failed or waiting)
                    raise JobFailedError(f"not built: {names}")
                tell(f"{len(derived.ALL) - len(waiting)} of {len(derived.ALL)} are built")
                time.sleep(_LOOK)

    def _unbuilt(self) -> list[JobStatus]:
        own = {one.job for one in derived.ALL}
        jobs = [job for job in self._lake.jobs.list() if (job.table, job.name) in own]
        return [job for job in jobs if job.watermark is None]

    def _live(self, child: Child, seconds: float) -> float:
        screen = self._screen
        screen.phase("Live", display.LIVE)
        ended = threading.Event()
        with first_only_sets(ended):
            self._watcher = Watcher(self._lake, child.commits, since=datetime.now(UTC))
            self._live_from = self._lake.snapshot
            child.begin(start_from(self._lake))
            self._cpu, began = cpu_seconds(self._lake), time.monotonic()
            with screen.live(seconds) as draw:
                while not ended.is_set():
                    passed = time.monotonic() - began
                    draw(self._watcher.look(), passed)
                    if passed >= seconds:
                        break
                    child.check()
                    ended.wait(min(screen.pause, seconds - passed))
        if ended.is_set():
            screen.say("Ended early. It is still checked; once more Ctrl-C quits at once.")
        return time.monotonic() - began

    def _recompute(self, child: Child) -> dict[str, Cost]:
        """What one recompute of each takes, beside what was beside the refreshes."""
        self._screen.phase("The same without", display.INSTEAD)
        costs = {}
        with (
            tempfile.TemporaryDirectory(
                prefix="tailrace-demo-", ignore_cleanup_errors=True
            ) as directory,
            closing(Recomputes(self._lake, directory, at=self._live_from)) as recomputes,
            self._screen.working("Each is recomputed, twice", "Each is measured") as tell,
        ):
            for one in (*derived.ALL, *derived.ALL):
                tell(f"{one.name} is recomputed")
                cpu = cpu_seconds(self._lake)
                done = in_background(partial(recomputes.run, one))
                while not done.done():
                    self._watcher.look()
                    child.check()
                    wait([done], self._screen.pause)
                cost = Cost(seconds=done.result(), cpu_seconds=cpu_seconds(self._lake) - cpu)
                costs[one.name] = cost
        return costs

    def _settle(self, child: Child) -> None:
        self._screen.phase("Is it right?", display.CHECKED)
        child.stop()
        with self._screen.working("The last refreshes", "Everything is fresh"):
            self._lake.run_until_fresh(timeout=_PATIENCE)

    def _results(self, live: Live, recomputes: Mapping[str, Cost]) -> list[Result]:
        screen, lake = self._screen, self._lake
        with screen.working("Everything is recomputed and compared", "Everything is checked"):
            checks = check_all(lake, live.searches)
        screen.show(display.checks(checks))
        screen.phase("What it took", display.TOOK)
        results = [
            Result(
                derived=one,
                check=check,
                refreshes=refreshes(lake, one, live.commits, since=live.since, until=live.until),
                recompute=recomputes[one.name],
                search_seconds=typical_seconds([s for s in live.searches if s.index is one]),
            )
            for one, check in zip(derived.ALL, checks, strict=True)
        ]
        screen.show(display.costs(results))
        screen.say(display.cpu(live.cpu_seconds, cpu_instead(results)))
        screen.say(display.HOW_MEASURED)
        screen.say(display.IN_MEMORY)
        screen.say(display.searched(live.searches, typical_seconds(live.searches)))
        return results
