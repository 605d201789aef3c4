"""What the demo says and shows: a sentence or two for each part, tables, and what to try next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence, Sized
from pathlib import Path
from statistics import median

from rich import box
from rich.bar import Bar
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tailrace.demo.derived import ALL
from tailrace.demo.freshness import Line, Picture
from tailrace.demo.results import Check, Result, delays_at_each_change
from tailrace.demo.searches import Search

SHOP = (
    "Five tables with primary keys: Parquet files in a directory, and a catalog in SQLite beside "
    "them. They are filled in one transaction, while Spark starts."
)
SHOP_THERE = (
    "Five tables with primary keys: Parquet files in a directory, and a catalog in SQLite beside "
    "them. They are as the last commit left them, and the demo goes on from there."
)
DERIVED = (
    "Materialized views of several kinds, a replica, a full-text index and a vector index. Each is "
    "a job that follows its tables; the first build of a view runs on Spark."
)
LIVE = (
    "Another process sells, ships, changes prices and writes reviews. What is derived follows by "
    "itself: each refresh reads what has changed, and commits its rows together with the snapshot "
    "that they reflect, the watermark. Meanwhile the indexes are searched, as of the newest "
    "commit. Ctrl-C skips to the checks."
)
INSTEAD = (
    "The same without Tailrace: the trade goes on and the indexes are searched, but nothing is "
    "refreshed. Each query is run anew by Spark, one after the other; each index is built anew."
)
CHECKED = (
    "The writer stops. Each derived table is compared, row by row, with a recompute by Spark from "
    "the shop's tables at the same snapshot. What the indexes find, now and in some of the earlier "
    "searches, is compared with a look at every row of their table at the snapshot of the search."
)
TOOK = "The refreshes, and what it takes to run the same queries anew each time, as without views."
HOW_MEASURED = (
    "took: all refreshes as they were recorded. one recompute: the query in plain Spark SQL over "
    "the tables as the live part found them, written as Parquet, or the index built anew; the "
    "second of two runs. instead: that, once for each refresh. Both beside the same writer and the "
    "same searches. delay: the median from a commit to what has it; in the last line, of what is "
    "refreshed at each change."
)
IN_MEMORY = (
    "Refreshes as small as these run in this process and start no Spark job; with tables as small "
    "as these, that decides. --scale 10 has ten times the rows, and the same changes."
)
NEXT = "This lake was temporary. Keep one with the first of these, and look around with the others:"
NEXT_KEPT = "The lake stays where it is. Look around:"


def commands(place: Path | None) -> list[str]:
    """What to type next, on a lake that was kept or on one that will be."""
    lake = "shop.lake" if place is None else shlex.quote(str(place))
    query = "SELECT name, price, sold FROM shop.best_sellers ORDER BY sold DESC"
    look = [
        f"tailrace status --lake {lake}",
        f'tailrace sql --lake {lake} -c "{query}"',
        f"tailrace search review_text 'sturdy gift' --lake {lake}",
        f"tailrace explain shop.revenue --lake {lake}",
        f"tailrace verify --lake {lake}",
        f"tailrace serve --lake {lake}",
    ]
    again = f"tailrace demo --keep {lake}"
    return [again, *look] if place is None else [*look, f"{again}   # goes on"]


def searched(searches: Sized, seconds: float | None) -> str:
    """What to say of the searches in the live part."""
    if seconds is None:
        return "Nothing was searched for in the live part."
    return (
        f"{len(searches)} searches in the live part, each as of the newest commit: what the index "
        f"did not have yet was read from the table. The median took {1000 * seconds:.0f} ms."
    )


def counted(rows: dict[str, int]) -> str:
    """How many rows there are, table by table."""
    parts = (f"{count:,} {name.rpartition('.')[2]}" for name, count in rows.items())
    return ", ".join(parts).replace("_", " ")


_WIDE = 92  # columns from which on there is room for everything
_HIGH = 22  # lines from which on there is room for what happens
_RECENT = 5


def short(name: str) -> str:
    """A name without its schema."""
    return name.rpartition(".")[2]


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    return table


def derived() -> Table:
    """What follows the shop."""
    table = _table("name", "what it is", "refreshed", "what it shows")
    for one in ALL:
        table.add_row(Text(one.name, "bold"), one.what, one.rhythm, Text(one.shows, "dim"))
    return table


# --- live -------------------------------------------------------------------------------------


def live(
    picture: Picture, passed: float, seconds: float, size: ConsoleDimensions
) -> RenderableType:
    """The whole demo at one moment."""
    parts: list[RenderableType] = [_freshness(picture, is_wide=size.width >= _WIDE)]
    if size.height >= _HIGH:
        parts += [Text(), _happening(picture, size.width), Text()]
        parts += [*(_found(search, size.width) for search in picture.searches), Text()]
    return Group(*parts, _progress(picture, passed, seconds))


def _freshness(picture: Picture, *, is_wide: bool) -> Table:
    numbers = ("rows", "watermark", "took", "runs")
    names = ["name", "what it is", "rows", "watermark", "behind", "strategy", "took", "runs"]
    if not is_wide:
        names.remove("watermark")
    table = _table(*names, right=numbers)
    table.columns[names.index("behind")].min_width = 17  # nothing moves when it is behind
    for line in picture.lines:
        cells: list[RenderableType] = [
            Text(short(line.derived.name), "bold"),
            line.derived.what,
            "" if line.rows is None else f"{line.rows:,}",
            "" if line.watermark is None else f"{line.watermark}",
            _behind(line),
            Text(line.strategy or "", "cyan"),
            "" if line.seconds is None else f"{1000 * line.seconds:,.0f} ms",
            f"{line.refreshes}",
        ]
        if not is_wide:
            del cells[3]
        table.add_row(*cells)
    return table


def _behind(line: Line) -> Text:
    if line.error is not None:
        return Text("error", "bold red")
    if line.watermark is None:
        return Text("not built yet", "yellow")
    if not line.commits_behind:
        return Text("fresh", "green")
    return Text(f"{_count(line.commits_behind, 'commit')}, {line.seconds_behind:.1f} s", "yellow")


def _happening(picture: Picture, width: int) -> Table:
    """What the writer does, and beside it what one of the views says."""
    beside = 44
    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=max(20, width - beside - 2), no_wrap=True, overflow="ellipsis")
    grid.add_column(width=beside, no_wrap=True)
    grid.add_row(Text("what the writer commits", "bold"), Text("shop.cities, as it is", "bold"))
    most = max((revenue for _, revenue in picture.cities), default=1.0)
    bars = [_bar(city, revenue, most) for city, revenue in picture.cities[:_RECENT]]
    texts = [
        Text(f"{commit.snapshot:>5}  {commit.text}", "dim" if number else "")
        for number, commit in enumerate(picture.recent[:_RECENT])
    ]
    for number in range(_RECENT):
        left = texts[number] if number < len(texts) else Text()
        grid.add_row(left, bars[number] if number < len(bars) else Text())
    return grid


def _found(search: Search, width: int) -> Text:
    """What a search has found, in a line: the best hits, and how many there are."""
    is_text = search.index.using == "fulltext"
    asked = search.asked.strip('"') if is_text else f"like {search.asked}"
    count = f"{len(search.keys):,} found" if is_text else f"of {search.rows:,}"
    line = Text.assemble(
        (f"{short(search.index.name)}: ", "bold"),
        (asked, "cyan"),
        f", {count} at {search.snapshot}: ",
        (search.shown, "dim"),
    )
    if is_text:
        line.highlight_words([asked], "bold", case_sensitive=False)
    line.truncate(width, overflow="ellipsis")
    line.no_wrap = True
    return line


def _bar(city: str, revenue: float, most: float) -> Table:
    row = Table.grid(padding=(0, 1))
    row.add_column(width=8, no_wrap=True)
    row.add_column(width=20)
    row.add_column(width=13, justify="right", no_wrap=True)
    row.add_row(city, Bar(most, 0, revenue, color="cyan"), f"{revenue:,.2f}")
    return row


def _progress(picture: Picture, passed: float, seconds: float) -> Table:
    row = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=seconds, completed=min(passed, seconds), width=24)
    row.add_row(bar, f"{min(passed, seconds):.0f} of {seconds:.0f} s", _pace(picture))
    return row


def _pace(picture: Picture) -> str:
    return f"{_count(picture.commits, 'commit')}, {picture.rate:.1f} a second"


def progress_line(picture: Picture, passed: float, seconds: float) -> str:
    """The same in a line."""
    late = [
        f"{short(line.derived.name)} {line.error or f'{line.seconds_behind:.1f} s'}"
        for line in picture.lines
        if line.commits_behind or line.error
    ]
    shown = f"behind are {', '.join(late)}" if late else "all is fresh"
    return f"{passed:4.0f} of {seconds:.0f} s: {_count(picture.commits, 'commit')}; {shown}"


def _count(number: int, what: str, ending: str = "s") -> str:
    return f"{number:,} {what}{'' if number == 1 else ending}"


# --- at the end ---------------------------------------------------------------------------------


def checks(done: Sequence[Check]) -> Table:
    """The results of the checks."""
    table = _table("name", "rows", "at snapshot", "equal to a recompute?", right=("rows",))
    for check in done:
        right = "ok" if not check.searches else f"ok, {_count(check.searches, 'search', 'es')}"
        answer = Text(right, "bold green") if check.ok else Text(check.details, "bold red")
        table.add_row(Text(check.name, "bold"), f"{check.rows:,}", f"{check.watermark}", answer)
    return table


def costs(results: Sequence[Result]) -> Table:
    """Refreshing against recomputing."""
    numbers = ("refreshes", "took", "one recompute", "instead", "faster", "delay")
    table = _table("name", *numbers, "strategies", right=numbers)
    table.columns[-1].no_wrap = False
    for result in results:
        done = result.refreshes
        ways = ", ".join(f"{way} {count}" for way, count in done.strategies.items())
        table.add_row(
            Text(short(result.check.name), "bold"),
            f"{done.count}",
            f"{done.seconds:.1f} s",
            f"{result.recompute.seconds:.2f} s",
            f"{result.recompute_every_time:.1f} s",
            _times(done.seconds, result.recompute_every_time),
            _delay(done.delays),
            Text(ways, "dim"),
        )
    took = sum(result.refreshes.seconds for result in results)
    instead = sum(result.recompute_every_time for result in results)
    count = sum(result.refreshes.count for result in results)
    delays = delays_at_each_change(results)
    table.add_section()
    table.add_row(
        "all", f"{count}", f"{took:.1f} s", "", f"{instead:.1f} s", _times(took, instead),
        _delay(delays), "",
    )  # fmt: skip
    return table


def cpu(refreshing: float, recomputing: float) -> str:
    """The same in CPU time."""
    times = f", {recomputing / refreshing:.1f}×" if refreshing else ""  # noqa: RUF001
    return (
        f"CPU time, Spark's included: {refreshing:.1f} s for all that keeps it fresh, "
        f"{recomputing:.1f} s instead{times}."
    )


def _delay(delays: Sequence[float]) -> str:
    return f"{1000 * median(delays):,.0f} ms" if delays else ""


def _times(took: float, instead: float) -> Text:
    if not took:
        return Text("")
    times = f"{instead / took:.1f}×"  # noqa: RUF001  (times, not a letter)
    return Text(times, "bold green" if instead >= took else "bold yellow")
