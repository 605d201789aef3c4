"""Files are loaded in one transaction, in this process while they are small."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailrace
from tailrace.loading import Progress, load
from tests.support.lakes import LakeArgs

if TYPE_CHECKING:
    from tests.support.s3 import S3Bucket

KEYED = {"id": "bigint", "name": "string", "amount": "double"}


@pytest.fixture
def lake(sqlite_lake_args: LakeArgs) -> Iterator[tailrace.Lake]:
    with sqlite_lake_args.connect() as opened:
        yield opened
        assert opened.runtime.spark.session is None, "small input must not start Spark"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, text: str) -> str:
    Path(name).write_bytes(text.encode())
    return name


def rows(lake: tailrace.Lake, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.table(table).to_arrow().to_pylist()]


def reported(path: str) -> list[tuple[str, int, str, str]]:
    with Path(path).open(newline="") as handle:
        found = list(csv.DictReader(handle))
    return [(one["file"], int(one["line"]), one["column"], one["reason"]) for one in found]


def test_a_table_is_created_with_the_types_that_the_first_rows_show(
    lake: tailrace.Lake, here: Path
) -> None:
    write(
        "a.csv",
        "id,zip,big,x,ok,day,at,then,name,empty\n"
        '1,007,99999999999999999999,1,true,2024-01-31,2024-01-31 10:00:00,2024-01-31T10:00Z,"",\n'
        '2,12,1,2.5,FALSE,2024-02-01,2024-02-01T00:00:00.5,2024-01-31 10:00:00+02,"a\n""b""",\n'
        "3,,,,,,,,,\n",
    )
    write("b.csv", "x,id,more\n7,4,+49\n")
    report = load(lake, ["a.csv", "b.csv"], "t", primary_key="id")
    assert (report.created, report.rows, report.rejected, report.files) == (True, 4, 0, 2)
    assert report.snapshot == lake.snapshot == 1
    table = lake.table("t")
    assert table.primary_key == ["id"]
    assert table.columns == {
        "id": "bigint",
        "zip": "string",  # the zero would be lost
        "big": "string",  # no bigint holds it
        "x": "double",  # whole numbers in the other file
        "ok": "boolean",
        "day": "date",
        "at": "timestamp_ntz",
        "then": "timestamp",
        "name": "string",
        "empty": "string",
        "more": "string",
    }
    first, second, third, fourth = rows(lake, "t")
    assert first[3:9] == (
        1.0,
        True,
        date(2024, 1, 31),
        datetime(2024, 1, 31, 10),  # noqa: DTZ001
        datetime(2024, 1, 31, 10, tzinfo=UTC),
        "",
    )
    assert second[7:9] == (datetime(2024, 1, 31, 8, tzinfo=UTC), 'a\n"b"')
    assert third == (3, *[None] * 10)
    assert fourth == (4, None, None, 7.0, *[None] * 6, "+49")


def test_each_type_takes_its_own_texts_and_no_others(lake: tailrace.Lake, here: Path) -> None:
    texts: dict[str, tuple[dict[str, Any], list[str]]] = {
        "tinyint": ({"-128": -128, " 7 ": 7}, ["128", "1.0", "0x1", "1e1", "a"]),
        "bigint": ({"9223372036854775807": 2**63 - 1}, ["9223372036854775808", "1 2"]),
        "float": ({"1.5": 1.5, "-inf": float("-inf")}, ["1e39", "1,5"]),
        "decimal(5,2)": ({"123.45": Decimal("123.45"), "1e2": 100}, ["1.234", "1000", "x"]),
        "boolean": ({"True": True, "0": False}, ["yes", "2"]),
        "date": ({"2024-02-29": date(2024, 2, 29)}, ["2023-02-29", "29.02.2024", "2024-02-29 1"]),
        "timestamp": ({"2024-01-01T00:00Z": datetime(2024, 1, 1, tzinfo=UTC)}, ["2024-01-01"]),
        "timestamp_ntz": ({"2024-01-01": datetime(2024, 1, 1)}, ["2024-01-01T00:00Z"]),  # noqa: DTZ001
        "string": ({" a ": " a ", "NULL": "NULL"}, []),
    }
    for number, (kind, (good, bad)) in enumerate(texts.items()):
        lake.create_table(f"t{number}", {"v": kind, "n": "int"})
        lines = [f'"{text}",{place}' for place, text in enumerate([*bad, *good])]
        write("t.csv", "v,n\n" + "\n".join([*lines, '"",-1']) + "\n")
        report = load(lake, "t.csv", f"t{number}", on_error="report", report="r.csv")
        values = dict.fromkeys(good, 0) | good
        empty = "" if kind == "string" else None  # nothing else has an empty value
        assert [row[0] for row in rows(lake, f"t{number}")] == [*values.values(), empty], kind
        assert [line for _, line, _, _ in reported("r.csv")] == [*range(2, 2 + len(bad))], kind
        assert report.rejected == len(bad)


def test_an_abort_names_the_first_rows_and_leaves_nothing(lake: tailrace.Lake, here: Path) -> None:
    write("good.csv", "id,x\n1,1\n")
    # The sample is the first megabyte: what comes later may not be what it promised.
    many = "".join(f"{n},{n}\n" for n in range(10, 150_000))
    write("late.csv", f'id,x\n2,"3"\n\n{many}8,1.5\n9\n,4\n')
    with pytest.raises(tailrace.InvalidError) as caught:
        load(lake, ["good.csv", "late.csv"], "t", primary_key="id")
    assert str(caught.value).splitlines() == [
        "rows that do not fit main.t; nothing was loaded:",
        "  late.csv, line 149994, column x: '1.5' is not a valid bigint",
        "  late.csv, line 149995: it has 1 field, not 2",
        "  late.csv, line 149996, column id: it must not be NULL",
        "the types come from the first rows of each file: create the table first, with the types "
        "that you want",
        "fix the rows, or load the others with on_error='skip' or 'report'",
    ]
    assert lake.tables() == []
    assert lake.snapshot == 0


def test_rejected_rows_are_reported_with_file_line_and_text(
    lake: tailrace.Lake, here: Path
) -> None:
    lake.create_table("t", KEYED, primary_key="id")
    lake.table("t").append([{"id": 7, "name": "old", "amount": None}])
    Path("a.csv").write_bytes(
        b'ID,Amount,name\n1,2,"two\nlines"\n2,x,"two\r\nlines"\n\n3,4,caf\xe9\n4,5,6,7\n'
        b'1,8,again\n7,9,there\n5,10,"open\n6,11,never read\n'
    )
    report = load(lake, "a.csv", "t", on_error="report", report="r.csv")
    assert (report.rows, report.rejected) == (1, 6)
    assert reported("r.csv") == [
        ("a.csv", 4, "amount", "'x' is not a valid double"),
        ("a.csv", 7, "", "it is not UTF-8"),
        ("a.csv", 8, "", "it has 4 fields, not 3"),
        ("a.csv", 11, "", "a quote is opened and never closed"),
        ("a.csv", 9, "", "the key {'id': 1} stands in a.csv, line 2 already"),
        ("a.csv", 10, "", "the key {'id': 7} exists in main.t already"),
    ]
    with Path("r.csv").open(newline="") as handle:
        texts = [row["text"] for row in csv.DictReader(handle)]
    assert texts[0] == '2,x,"two\r\nlines"'
    assert texts[4] == '{"id": 1, "name": "again", "amount": 8.0}'
    assert load(lake, "r.csv", "rejects").rows == 6, "a report is a file that can be loaded"


@pytest.mark.parametrize(
    ("options", "names", "counts"),
    [
        ({"on_duplicate": "first", "on_existing": "replace"}, "a b", (2, 0, 2, 0)),
        ({"on_duplicate": "last", "on_existing": "replace"}, "c d", (2, 0, 2, 0)),
        ({"on_duplicate": "last", "on_existing": "keep"}, "old d", (1, 0, 2, 1)),
        ({"on_error": "skip"}, "old b", (1, 3, 0, 0)),
        ({"on_error": "skip", "on_existing": "keep"}, "old b", (1, 2, 0, 1)),
    ],
)
def test_keys_that_occur_twice_or_exist_are_treated_as_told(
    lake: tailrace.Lake, here: Path, options: Any, names: str, counts: tuple[int, ...]
) -> None:
    lake.create_table("t", KEYED, primary_key="id")
    lake.table("t").append([{"id": 1, "name": "old", "amount": None}])
    write("a.csv", "id,name\n1,a\n2,b\n")
    write("b.csv", "id,name\n1,c\n2,d\n")
    report = load(lake, ["a.csv", "b.csv"], "t", **options)
    assert (report.rows, report.rejected, report.repeated, report.kept) == counts
    assert [row[1] for row in sorted(rows(lake, "t"))] == names.split()


def test_json_is_read_line_by_line(lake: tailrace.Lake, here: Path) -> None:
    write(
        "a.jsonl",
        '{"id": 1, "who": {"name": "a", "age": 3}, "tags": ["x", null], "day": "2024-01-31"}\n'
        '\n  {"id": 2, "who": {"name": "b", "pet": true}, "price": 1}\r\n'
        '{"id": 3, "price": 2.5, "tags": [], "day": null}',  # no end of the line
    )
    assert load(lake, "a.jsonl", "t").rows == 3
    assert lake.table("t").columns == {
        "id": "bigint",
        "who": "struct<`name`:string,`age`:bigint,`pet`:boolean>",
        "tags": "array<string>",
        "day": "date",
        "price": "double",
    }
    second = {"name": "b", "age": None, "pet": True}
    assert rows(lake, "t")[1:] == [(2, second, None, None, 1.0), (3, None, [], None, 2.5)]
    good = "".join(f'{{"id": {n}, "price": {n}}}\n' for n in range(5000))
    write(
        "b.jsonl",
        f'{good}{{"id": "4"}}\n{{"id": 5, "Price": 1}}\n[1]\nnull\n{{"id": 6}}{{"id": 7}}\n'
        f'{{"id": 8, "who": {{"nmae": "x"}}}}\n{{"id": 8\n{{"id": 9, "day": "31.1.24"}}\n'
        f'{{"id": 9, "id": 9}}\n{good}',
    )
    report = load(lake, "b.jsonl", "t", on_error="report", report="r.csv")
    assert (report.rows, report.rejected) == (10_000, 9)
    assert [(line, column) for _, line, column, _ in reported("r.csv")] == [
        (5001, "id"),
        (5002, "Price"),
        *((line, "") for line in range(5003, 5008)),
        (5008, "day"),
        (5009, ""),
    ]
    reasons = [reason for _, _, _, reason in reported("r.csv")]
    assert reasons[0] == '"4" is not a valid bigint'
    assert reasons[1] == "the table has no such column; did you mean 'price'?"
    assert reasons[2] == reasons[3] == "it is not one JSON object"


def test_parquet_is_checked_and_rejected_by_row(lake: tailrace.Lake, here: Path) -> None:
    moment = datetime(2024, 1, 31, 10, tzinfo=UTC)
    instants = pa.array([moment.replace(tzinfo=None)] * 3, pa.timestamp("us"))
    first = pa.table({"id": [1, 2, 3], "at": instants, "f": [1.5, None, 2.5]})
    # Spark writes timestamps as INT96, which Arrow takes for times without a zone.
    pq.write_table(first, "a.parquet", use_deprecated_int96_timestamps=True, row_group_size=2)
    assert load(lake, "a.parquet", "t").rows == 3
    assert lake.table("t").columns == {"id": "bigint", "at": "timestamp", "f": "double"}
    assert rows(lake, "t")[2] == (3, moment, 2.5)
    lake.create_table("narrow", {"id": "tinyint not null", "f": "float"})
    second = pa.table({"id": [1, 300, None, 4], "f": [1.0, 1.0, 1.0, 1e300]})
    pq.write_table(second, "b.parquet", row_group_size=2)
    report = load(lake, "b.parquet", "narrow", on_error="report", report="r.csv")
    assert report.rows == 1
    assert reported("r.csv") == [
        ("b.parquet", 2, "id", "'300' is not a valid tinyint"),
        ("b.parquet", 3, "id", "it must not be NULL"),
        ("b.parquet", 4, "f", "'1e+300' is not a valid float"),
    ]


def test_text_is_read_as_the_options_say(lake: tailrace.Lake, here: Path) -> None:
    lake.create_table("t", {"at": "timestamp", "v": "string"})
    write("a.tsv", "2024-07-01 12:00\tNA\n2024-07-01 12:00:00Z\t'\"N\tA'\n")
    load(lake, "a.tsv", "t", header=False, null="NA", quote="'", time_zone="Europe/Berlin")
    assert rows(lake, "t") == [
        (datetime(2024, 7, 1, 10, tzinfo=UTC), None),
        (datetime(2024, 7, 1, 12, tzinfo=UTC), '"N\tA'),
    ]
    write("b.txt", "v;at\nx;2024-03-31 02:30\n")  # an hour that was left out in Berlin
    with pytest.raises(tailrace.InvalidError, match="is not one point in time in Europe/Berlin"):
        load(lake, "b.txt", "t", format="csv", delimiter=";", time_zone="Europe/Berlin")
    with pytest.raises(tailrace.InvalidError, match="it names no time zone; give the load one"):
        load(lake, "b.txt", "t", format="csv", delimiter=";")


def test_files_are_found_by_pattern_decompressed_and_told_of(
    lake: tailrace.Lake, here: Path
) -> None:
    for number in range(3):
        Path(f"part{number}.csv.gz").write_bytes(gzip.compress(b"id\n%d\n" % number))
    write("other.csv", "id\n9\n")
    told: list[Progress] = []
    report = load(lake, ["part?.csv.gz", "other.csv"], "t", progress=told.append)
    assert report.files == 4
    assert [row[0] for row in rows(lake, "t")] == [0, 1, 2, 9]
    assert [one.files_done for one in told] == [0, 1, 2, 3, 4, 4]
    assert told[-1].bytes_done == told[-1].bytes > 0
    assert (told[-1].rows, told[-1].doing) == (4, "writing")


def test_objects_are_loaded_from_the_lakes_storage(tmp_path: Path, s3_bucket: S3Bucket) -> None:
    store = s3_bucket.store()
    for number in range(2):
        obstore.put(store, f"in/{number}.csv", b"id\n%d\n" % number)
    options = {
        "endpoint": s3_bucket.endpoint,
        "access_key_id": s3_bucket.access_key,
        "secret_access_key": s3_bucket.secret_key,
        "region": s3_bucket.region,
        "allow_http": True,
    }
    with tailrace.connect(tmp_path / "lake", storage_options=options) as lake:
        assert load(lake, s3_bucket.url("in/*.csv"), "t").rows == 2
        assert load(lake, s3_bucket.url("in/1.csv"), "t").rows == 1
        with pytest.raises(tailrace.NotFoundError, match=r"in/2.csv"):
            load(lake, s3_bucket.url("in/2.csv"), "t")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "id,nmae\n",
            {},
            "a.csv has a column 'nmae', which main.t does not have; did you mean 'name'?",
        ),
        ("name\nx\n", {}, "a.csv has no column 'id', which must not be NULL in main.t"),
        ("id,ID\n1,2\n", {}, "a.csv has two columns called 'ID'"),
        ("id,\n1,2\n", {}, "a.csv: column 2 has no name"),
        ("id,tags\n", {}, "is array<string>: such values can't be read from CSV; use Parquet"),
        ("1,2\n", {"header": False}, "has 2 fields in its first line, and these names are known"),
        ('[{"id": 1}]', {"format": "json"}, "a.csv is one JSON array"),
        ("id", {"format": "parquet"}, "a.csv is not a Parquet file"),
        ("id\n1\n", {"primary_key": "name"}, "main.t has the primary key id, not name"),
        ("", {"on_error": "report"}, "give report= and on_error='report', or neither"),
        ("", {"on_error": "stop"}, "abort, skip, report, not 'stop': change on_error"),
        ("", {"delimiter": ",,"}, "expected a single ASCII character such as ','"),
        ("", {"time_zone": "Berlin"}, "there is no time zone 'Berlin'"),
        ("", {"columns": "id"}, "columns name the fields of files without a header"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_what_to_do(
    lake: tailrace.Lake, here: Path, text: str, options: dict[str, Any], message: str
) -> None:
    lake.create_table(
        "t", {"id": "bigint", "name": "string", "tags": "array<string>"}, primary_key="id"
    )
    write("a.csv", text)
    with pytest.raises(tailrace.InvalidError) as caught:
        load(lake, "a.csv", "t", **options)
    assert message in str(caught.value)


def test_what_is_not_there_is_said(lake: tailrace.Lake, here: Path) -> None:
    write("a.csv", "id\n1\n")
    pq.write_table(pa.table({"id": ["1"]}), "a.parquet")
    lake.create_table("t", {"id": "bigint"})
    with pytest.raises(tailrace.InvalidError, match=r"'id' is string, but main.t.id is bigint"):
        load(lake, "a.parquet", "t")
    with pytest.raises(tailrace.NotFoundError, match=r"there is no file b.csv"):
        load(lake, ["a.csv", "b.csv"], "t")
    with pytest.raises(tailrace.NotFoundError, match="there is no table u"):
        load(lake, "a.csv", "u", create=False)
    with pytest.raises(tailrace.InvalidError, match=r"a.csv is named twice"):
        load(lake, ["a.csv", here / "a.csv"], "t")
    with pytest.raises(tailrace.InvalidError, match="on_duplicate='last' needs one"):
        load(lake, "a.csv", "t", on_duplicate="last")
    with pytest.raises(tailrace.InvalidError, match="is a directory"):
        load(lake, here, "t")
    write("empty.csv", "")
    with pytest.raises(tailrace.InvalidError, match="the files are empty"):
        load(lake, "empty.csv", "u")
    assert load(lake, ["empty.csv", "a.csv"], "t").rows == 1


def test_the_example_in_the_guide_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guide = Path(__file__).parents[2] / "docs" / "loading.md"
    (example,) = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    names["lake"].close()
    said = capsys.readouterr().out
    assert said.startswith("2 1 1\n")
    assert "orders.csv,5,amount,a lot,'a lot' is not a valid double" in said
