"""The demo, as a newcomer starts it; and as it goes on after the worst."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace.demo import derived, run, searches, shop
from tests.support.process import wait_until

if TYPE_CHECKING:
    import pyarrow as pa


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": 1000}, "scale goes from 0.01 to 20"),
        ({"seconds": 0}, "from 1 second to a day"),
        ({"output": "xml"}, "text or json"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_made(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(tailrace.InvalidError, match=message):
        run(keep=tmp_path / "lake", **arguments)
    assert not (tmp_path / "lake").exists()


def test_what_is_not_the_demos_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(tailrace.InvalidError, match="has other files in it"):
        run(keep=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.early
def test_a_demo_whose_process_was_killed_goes_on_with_the_same_lake(tmp_path: Path) -> None:
    place = tmp_path / "lake"
    before = _kill_in_the_middle(place, lambda demo: demo.kill())
    again = _start(place, seconds=3)
    try:
        said, messages = again.communicate(timeout=200)
    finally:
        _end(again, None)
    assert again.returncode == 0, messages
    assert "5  Is it right?" in messages  # for people, and not in the document
    _check(place, before, json.loads(said))


@pytest.mark.stress
def test_a_demo_goes_on_when_all_of_it_was_killed_and_ctrl_c_ends_its_live_part(
    tmp_path: Path,
) -> None:
    place = tmp_path / "lake"
    before = _kill_in_the_middle(place, lambda demo: os.killpg(demo.pid, signal.SIGKILL))
    again = _start(place, seconds=300)
    try:
        _wait_for_changes(place, since=before.snapshot)
        again.send_signal(signal.SIGINT)
        said, messages = again.communicate(timeout=200)
    finally:
        _end(again, None)
    assert again.returncode == 0, messages
    assert "Ended early." in messages
    _check(place, before, json.loads(said))


@dataclass(frozen=True, kw_only=True)
class Before:
    """The shop as a killed demo has left it."""

    snapshot: int
    rows: dict[str, pa.Table]


def _kill_in_the_middle(place: Path, kill: Callable[[subprocess.Popen[str]], None]) -> Before:
    demo, writer = _start(place, seconds=300), None
    try:
        _wait_for_changes(place, since=1)
        (writer,) = [pid for pid in _children(demo.pid) if _is_writer(pid)]
        kill(demo)
        assert demo.wait() == -signal.SIGKILL
        # Nobody is there to stop it: it notices by itself.
        wait_until(lambda: not _is_writer(writer), what="the end of the writer", timeout=60)
    finally:
        _end(demo, writer)
    with tailrace.connect(place) as lake:
        rows = {name: lake.table(name).to_arrow() for name in shop.TABLES}
        return Before(snapshot=lake.snapshot, rows=rows)


def _check(place: Path, before: Before, found: dict[str, Any]) -> None:
    assert found["ok"]
    assert not found["is_new"]
    assert found["began_at_snapshot"] == before.snapshot
    assert found["commits"]["count"] > 0
    assert found["refresh_cpu_seconds"] > 0
    assert found["recompute_every_time_cpu_seconds"] > 0
    assert [one["name"] for one in found["derived"]] == [one.name for one in derived.ALL]
    for one in found["derived"]:
        assert one["ok"], one
        assert one["rows"] > 0
        assert one["recompute_seconds"] > 0
        assert one["recompute_cpu_seconds"] >= 0
        assert sum(one["strategies"].values()) == one["refreshes"]
    text, vectors = found["derived"][-2:]
    assert text["searches_checked"] > len(searches.ASKED[derived.REVIEW_TEXT])
    assert vectors["searches_checked"] > len(searches.ASKED[derived.LOOK_ALIKES])
    with tailrace.connect(place) as lake:
        assert lake.snapshot > before.snapshot
        for name, rows in before.rows.items():
            assert lake.table(name).to_arrow(at=before.snapshot).equals(rows)


def _start(place: Path, *, seconds: int) -> subprocess.Popen[str]:
    options = ["--seconds", str(seconds), "--scale", "0.01", "--keep", str(place)]
    return subprocess.Popen(
        [sys.executable, "-m", "tailrace.demo", *options, "--output", "json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _end(demo: subprocess.Popen[str], writer: int | None) -> None:
    """Whatever has happened: no process is left behind, and no pipe open."""
    if demo.poll() is None:
        demo.kill()
    demo.wait()
    for stream in (demo.stdout, demo.stderr):
        if stream is not None:
            stream.close()
    if writer is not None and _is_writer(writer):
        os.kill(writer, signal.SIGKILL)


def _wait_for_changes(place: Path, *, since: int) -> None:
    """Until the writer has written after a snapshot: the live part has begun."""
    wait_until((place / "catalog.sqlite").exists, what="a lake", timeout=60)
    with tailrace.connect(place) as lake:
        wait_until(lambda: shop.is_there(lake), what="a shop", timeout=60)
        orders = lake.table(shop.ORDERS).info.id

        def have_changed() -> bool:
            return dict(lake.changed_tables(since)).get(orders, 0) > since + 5

        wait_until(have_changed, what="live changes", timeout=120)


def _children(pid: int) -> list[int]:
    told = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True
    )
    return [int(word) for word in told.stdout.split()]


def _is_writer(pid: int) -> bool:
    told = subprocess.run(
        ["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return "tailrace.demo.writer" in told.stdout
