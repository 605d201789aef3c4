"""Large input goes through Spark's workers, with the same rows and rejected rows as small input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailrace
from tailrace.loading import Progress, load, plan, with_spark
from tests.support.lakes import LakeArgs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE = tailrace.Settings(local_bytes=0)  # nothing is small


@pytest.fixture
def small(sqlite_lake_args: LakeArgs) -> Iterator[tailrace.Lake]:
    with sqlite_lake_args.connect() as lake:
        yield lake


@pytest.fixture
def large(tmp_path: Path, spark: SparkSession) -> Iterator[tailrace.Lake]:
    with tailrace.connect(tmp_path / "large", spark=spark, settings=LARGE) as lake:
        yield lake


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cut_into(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Cut the input into parts of this size, as if it were large."""
    for module in (plan, with_spark):
        monkeypatch.setattr(module, "PART_BYTES", size)


def bag(lake: tailrace.Lake, table: str) -> Counter[str]:
    return Counter(map(repr, lake.table(table).to_arrow().to_pylist()))


def objects(lake: tailrace.Lake) -> int:
    local = lake.runtime.storage.local
    assert local is not None
    return len(list(local.rglob("*.parquet")))


def write_mixed() -> list[str]:
    """Files of all formats, with keys that repeat and rows that do not fit."""
    lines = [f"{n},{n / 4},name {n}" for n in range(300)]
    lines[50], lines[120], lines[250] = "50,x,bad", "1,1,again", "250"
    lines[200] = '200,1,"two\nlines"'
    Path("a.csv").write_text("id,amount,name\n" + "\n".join(lines) + "\n")
    objects = [f'{{"id": {n}, "name": "json"}}' for n in range(290, 400)]
    objects[30] = '{"id": "320"}'
    Path("b.jsonl").write_text("\n".join(objects) + "\n")
    rows = pa.table({"id": [*range(395, 500), None], "amount": [1.5] * 106})
    pq.write_table(rows, "c.parquet", row_group_size=20)
    return ["a.csv", "b.jsonl", "c.parquet"]


@pytest.mark.parametrize(
    "options",
    [
        {"primary_key": None, "on_error": "report"},
        {"on_error": "report"},
        {"on_error": "skip", "on_duplicate": "last", "on_existing": "replace"},
        {"on_error": "report", "on_duplicate": "first", "on_existing": "keep"},
    ],
)
def test_both_ways_load_the_same_rows_and_report_the_same(
    small: tailrace.Lake,
    large: tailrace.Lake,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
) -> None:
    files = write_mixed()
    cut_into(monkeypatch, 700)
    reports, told, texts = [], [], []
    for lake in (small, large):
        keys = {"primary_key": "id"} | options
        columns = {"id": "bigint", "name": "string", "amount": "double"}
        table = lake.create_table("t", columns, primary_key=keys["primary_key"])
        table.append([{"id": 1000 + n, "name": "old", "amount": None} for n in (0, 1)])
        table.append([{"id": 3, "name": "old", "amount": 0.0}])
        if options["on_error"] == "report":
            keys["report"] = "r.csv"
        reports.append(load(lake, files, "t", progress=told.append, **keys))
        texts.append(Path("r.csv").read_text().splitlines() if "report" in keys else [])
    here_report, there_report = reports
    assert (here_report.engine, there_report.engine) == ("process", "spark")
    for field in ("rows", "rejected", "repeated", "kept", "files"):
        assert getattr(here_report, field) == getattr(there_report, field), field
    assert here_report.rejected > 0
    assert Counter(texts[0]) == Counter(texts[1])
    assert bag(small, "t") == bag(large, "t")
    last: Progress = told[-1]
    assert (last.files_done, last.doing, last.bytes_done) == (3, "writing", last.bytes)
    assert large.sweep().deleted == 0, "what was staged is deleted already"


def test_a_file_that_is_cut_inside_quotes_is_read_again_whole(
    large: tailrace.Lake, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sample shows one line a row; a part that begins after it begins inside quotes.
    plain = "".join(f"{n},{'x' * 90}\n" for n in range(12_000))
    long = "".join(f"{n},v\n" for n in range(100_000))
    Path("a.csv").write_text(f'id,v\n{plain}12000,"\n{long}"\nbad,v\n12001,v\n')
    cut_into(monkeypatch, 200_000)
    told: list[Progress] = []
    report = load(large, "a.csv", "t", on_error="report", report="r.csv", progress=told.append)
    assert len([one for one in told if one.doing == "reading" and not one.bytes_done]) == 2
    assert (report.rows, report.rejected) == (12_002, 1)
    assert "a.csv,112004,id,bad,'bad' is not a valid bigint" in Path("r.csv").read_text()
    with pytest.raises(tailrace.InvalidError, match=r"a\.csv, line 112004, column id: 'bad'"):
        load(large, "a.csv", "t")
    assert large.table("t").to_df().count() == 12_002


def test_an_abort_names_lines_of_a_part_in_the_middle_and_cleans_up(
    large: tailrace.Lake, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large.create_table("t", {"id": "bigint", "v": "string"}, primary_key="id")
    before = objects(large)
    cut_into(monkeypatch, 1000)
    rows = [f"{n},v" for n in range(2000)]
    rows[1500] = "1500"
    Path("a.csv").write_text("id,v\n\n" + "\n".join(rows))
    with pytest.raises(tailrace.InvalidError, match=r"a\.csv, line 1503: it has 1 field, not 2"):
        load(large, "a.csv", "t")
    rows[1500] = "7,again"
    Path("a.csv").write_text("id,v\n\n" + "\n".join(rows))
    with pytest.raises(tailrace.InvalidError) as caught:
        load(large, "a.csv", "t")
    assert "a.csv, line 1503: the key {'id': 7} stands in a.csv, line 10 already" in str(
        caught.value
    )
    assert large.snapshot == 1
    large.sweep()
    assert objects(large) == before
