"""The demo, as a newcomer starts it; and as it goes on after the worst."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console, ConsoleDimensions

import tailrace
from tailrace.demo import derived, run, searches, shop, tables
from tailrace.demo.freshness import Line, Picture, _delays
from tailrace.demo.writer import Commit, Start, Trade
from tests.support.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tailrace.propagation.history import Iteration

SMALL = shop.Sizes(customers=50, products=20, orders=200, reviews=100)


# --- without Spark --------------------------------------------------------------------------


def test_the_shop_is_the_same_wherever_it_is_made() -> None:
    one, other = (shop.generate(SMALL) for _ in range(2))
    assert {name: rows.num_rows for name, rows in one.items()}.keys() == shop.TABLES.keys()
    assert all(one[name].equals(other[name]) for name in one)
    full = shop.Sizes(customers=5_000, products=500, orders=50_000, reviews=10_000)
    assert shop.Sizes.of(1) == full


@pytest.fixture
def small_shop(tmp_path: Path) -> Iterator[tailrace.Lake]:
    with tailrace.connect(tmp_path / "lake") as lake:
        assert not shop.is_there(lake)
        shop.create(lake, SMALL)
        assert shop.is_there(lake)
        yield lake


def test_the_writer_makes_commits_of_every_kind_and_leaves_no_line_without_its_order(
    small_shop: tailrace.Lake,
) -> None:
    before = small_shop.snapshot
    done = _trade(small_shop, 100)
    assert [commit.snapshot for commit in done] == list(range(before + 1, before + 101))
    kinds = {"order", "status", "cancel", "price", "customer", "product"}
    assert {commit.kind for commit in done} == kinds | {"review", "edit", "withdrawal"}
    orders = set(small_shop.table(shop.ORDERS).to_arrow()["id"].to_pylist())
    lines = set(small_shop.table(shop.LINES).to_arrow()["order_id"].to_pylist())
    assert lines == orders
    assert max(orders) > SMALL.orders


def test_the_same_start_leads_to_the_same_trade(tmp_path: Path) -> None:
    told = []
    for name in ("one", "other"):
        with tailrace.connect(tmp_path / name) as lake:
            shop.create(lake, SMALL)
            told.append([(commit.kind, commit.text) for commit in _trade(lake, 20)])
    assert told[0] == told[1]


def _trade(lake: tailrace.Lake, commits: int) -> list[Commit]:
    trade = _trader(lake)
    return [trade.step() for _ in range(commits)]


def _trader(lake: tailrace.Lake) -> Trade:
    orders = lake.table(shop.ORDERS).to_arrow().slice(SMALL.orders - 20).to_pylist()
    products = lake.table(shop.PRODUCTS).to_arrow().to_pylist()
    start = Start(
        seed=1,
        newest_order=SMALL.orders,
        newest_customer=SMALL.customers,
        newest_review=SMALL.reviews,
        orders=[[o["id"], o["customer_id"], "paid", o["placed_at"].isoformat()] for o in orders],
        products=[[p["id"], p["name"], p["category"], str(p["price"])] for p in products],
        reviews=[[number, 1] for number in range(SMALL.reviews - 20, SMALL.reviews + 1)],
    )
    return Trade(lake, Start(**json.loads(json.dumps(vars(start)))))


def test_searches_of_the_live_part_are_as_of_the_newest_commit_and_are_checked_later(
    small_shop: tailrace.Lake,
) -> None:
    for index in derived.INDEXES:
        small_shop.create_index(*index.job, using=index.using, columns=index.column)
        small_shop.index(*index.job).wait()
    searcher, trade = searches.Searcher(small_shop, pause=0, turn=1), _trader(small_shop)
    for _ in range(10):
        assert all(one.snapshot == small_shop.snapshot for one in searcher.look())
        for _ in range(4):
            trade.step()
    assert {one.asked for one in searcher.done} == {
        w for asked in searches.ASKED.values() for w in asked
    }
    assert all(searches.compare(small_shop, one) == (0, 0) for one in searcher.done)
    for one in searcher.done:
        assert one.keys
        word = one.asked.strip('"') if one.index is derived.REVIEW_TEXT else ", "
        assert word in one.shown.lower(), one


def test_a_search_that_is_wrong_is_found_out(small_shop: tailrace.Lake) -> None:
    for index in derived.INDEXES:
        small_shop.create_index(*index.job, using=index.using, columns=index.column)
        small_shop.index(*index.job).wait()
        asked = searches.ASKED[index][0]
        right = searches.search(small_shop, index, asked)
        assert searches.compare(small_shop, right) == (0, 0)
        less = replace(right, keys=right.keys[:-1])
        assert searches.compare(small_shop, less) == (1, 0)
        twice = replace(right, keys=(*right.keys[:-1], right.keys[0]))
        assert sum(searches.compare(small_shop, twice)) > 0
        other = replace(right, keys=(*right.keys[:-1], 10**9))
        assert searches.compare(small_shop, other) == (1, 1)


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
    with tailrace.connect(tmp_path / "lake") as lake:
        lake.create_table("mine", {"id": "bigint"})
        with pytest.raises(tailrace.InvalidError, match=r"not made by the demo \(it has main.mine"):
            shop.is_there(lake)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_live_table_fits_the_terminal(width: int) -> None:
    lines = tuple(
        Line(
            derived=one,
            rows=20_000,
            watermark=1234,
            commits_behind=12,
            seconds_behind=10.5,
            error=None,
            strategy="append",
            seconds=1.234,
            refreshes=120,
        )
        for one in derived.ALL
    )
    commit = Commit(snapshot=1234, at=0.0, kind="order", tables=(), text="order 50001: " + "x" * 90)
    found = tuple(
        searches.Search(
            index=index,
            asked=searches.ASKED[index][0],
            snapshot=1234,
            keys=(1,) * 1000,
            limit=10,
            rows=20_000,
            seconds=0.1,
            shown="Sturdy, and it looks good. " * 9,
        )
        for index in derived.INDEXES
    )
    picture = Picture(
        searches=found,
        lines=lines,
        snapshot=1234,
        commits=1000,
        rate=4.0,
        recent=(commit,) * 8,
        cities=(("Utrecht", 12_345_678.9),) * 10,
    )
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=False)
    console.print(tables.live(picture, 10, 60, ConsoleDimensions(width, 24)))
    shown = [line.rstrip() for line in output.getvalue().splitlines()]
    assert max(map(len, shown)) <= width
    assert len(shown) <= 22
    for one in derived.ALL:
        (line,) = [line for line in shown if line.startswith(f"{tables.short(one.name)} ")]
        assert "12 commits, 10.5 s" in line
        assert line.split()[-3:] == ["1,234", "ms", "120"]
    assert any(line.startswith("review_text: sturdy, 1,000 found at 1234: Stur") for line in shown)
    assert any(line.startswith("look_alikes: like Oak bench, of 20,000") for line in shown)


def test_a_delay_goes_from_a_commit_to_the_end_of_the_first_refresh_that_has_it() -> None:
    commits = [
        Commit(snapshot=number, at=float(number), kind="order", tables=(), text="")
        for number in (10, 11, 14, 20)
    ]
    done = [_refresh(to=11, ended=12.5), _refresh(to=15, ended=16.0)]
    assert _delays(commits, done) == [2.5, 1.5, 2.0]


def _refresh(*, to: int, ended: float) -> Iteration:
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(ended, UTC)
    return tailrace.Iteration(
        job_id=1,
        tenant="default",
        sources=(),
        from_snapshot=0,
        to_snapshot=to,
        kind="tail",
        node_id="",
        started_at=moment,
        ended_at=moment,
        seconds=0.1,
    )


# --- all of it ------------------------------------------------------------------------------


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
    assert "4  Is it right?" in messages  # for people, and not in the document
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
    assert [one["name"] for one in found["derived"]] == [one.name for one in derived.ALL]
    for one in found["derived"]:
        assert one["ok"], one
        assert one["rows"] > 0
        assert one["recompute_seconds"] > 0
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
