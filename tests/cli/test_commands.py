"""The command line, command by command: what it prints where, and its exit status."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import tailrace
from tailrace.cli import printing
from tailrace.cli.main import app, main

ORDERS = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer STRING, amount DECIMAL(12,2));
INSERT INTO orders VALUES (1, 'ada', 12.5), (2, 'bob', 3);
CREATE MATERIALIZED VIEW totals AS
    SELECT customer, sum(amount) AS total FROM orders GROUP BY customer
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in, with a lake in the default place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILRACE_LAKE", raising=False)
    with tailrace.connect("lake") as lake:
        lake.sql(ORDERS)
    return tmp_path


def run(*args: str, status: int = 0, stdin: str | None = None) -> Result:
    """Call it in this process; what it says on standard error is found in `messages`."""
    result = CliRunner().invoke(app, args, input=stdin)
    assert result.exit_code == status, (result.output, result.exception)
    return result


def fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str) -> str:
    """What is said of a call that fails, with status 1."""
    said: list[str] = []
    monkeypatch.setattr(printing, "say", said.append)
    monkeypatch.setattr(sys, "argv", ["tailrace", *args])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    assert capsys.readouterr().out == ""
    (message,) = said
    return message


def as_json(result: Result) -> Any:
    return json.loads(result.stdout)


def test_lists_need_no_spark(place: Path) -> None:
    (orders,) = as_json(run("tables", "--output", "json"))
    assert (orders["table"], orders["rows"]) == ("main.orders", 2)
    (view,) = as_json(run("views", "-o", "json"))
    assert (view["view"], view["watermark"]) == ("main.totals", None)
    (job,) = as_json(run("jobs", "-o", "json"))
    assert (job["object"], job["kind"]) == ("main.totals", "view")
    assert len(as_json(run("snapshots", "-n", "2", "-o", "json"))) == 2
    assert as_json(run("iterations", "-o", "json")) == []
    assert as_json(run("indexes", "-o", "json")) == []
    status = as_json(run("status", "-o", "json"))
    assert (status["views"], status["behind"], status["served"]) == (1, 1, False)
    lines = run("tables").stdout.splitlines()
    assert lines[0].split() == ["table", "rows", "files", "bytes", "changed"]
    assert lines[1].split()[:2] == ["main.orders", "2"]


def test_another_lake_is_named_or_in_the_environment(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with tailrace.connect(place / "other") as lake:
        lake.create_schema("there")
        lake.create_table("there.t", {"a": "int"})
    named = as_json(run("tables", "--lake", "other", "-o", "json"))
    monkeypatch.setenv("TAILRACE_LAKE", str(place / "other"))
    assert as_json(run("tables", "-o", "json")) == named
    assert [row["table"] for row in named] == ["there.t"]
    # A misspelled one is not made.
    message = fails(capsys, monkeypatch, "tables", "--lake", "oter")
    assert message == "error: there is no lake at oter: check the name; tailrace sql creates one"
    assert not (place / "oter").exists()
    (place / "file").write_text("no lake")
    assert "is a file" in fails(capsys, monkeypatch, "tables", "--lake", "file")


def test_a_wrong_call_has_its_own_status(place: Path) -> None:
    assert "No such command" in run("frobnicate", status=2).output
    assert "No such option" in run("tables", "--frob", status=2).output
    assert "xml" in run("tables", "--output", "xml", status=2).output
    assert "--full" in run("refresh", "--full", status=2).output
    assert "cannot import" in run("serve", "--import", "no_such_module", status=2).output


def test_failures_are_said_in_a_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "did you mean SELECT?" in fails(capsys, monkeypatch, "sql", "-c", "SELEC 1")
    assert "there is no view main.nope" in fails(capsys, monkeypatch, "explain", "nope")
    assert "not been built" in fails(capsys, monkeypatch, "verify", "totals")
    assert "not available yet" in fails(capsys, monkeypatch, "search", "orders/ft", "late")


@pytest.mark.usefixtures("spark")
def test_statements_and_scripts(place: Path) -> None:
    rows = as_json(run("sql", "-o", "json", "-c", "SELECT * FROM orders ORDER BY id"))
    assert rows[0] == {"id": 1, "customer": "ada", "amount": "12.50"}
    script = (
        "INSERT INTO orders VALUES (3, 'eve', 1); "
        "SELECT count(*) AS n, double('NaN') AS x FROM orders"
    )
    did, counted = run("sql", "-o", "json", stdin=script).stdout.splitlines()
    assert json.loads(did)["rows"] == 1
    assert json.loads(counted) == [{"n": 3, "x": "nan"}]
    shown = run("sql", "--limit", "1", "-c", "SELECT id, NULL AS nothing FROM orders ORDER BY id")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["id", "nothing"],
        ["1", "NULL"],
    ]
    # A new lake is made, where one is asked for.
    run("sql", "--lake", "new", "-c", "CREATE SCHEMA s")
    assert (place / "new" / "catalog.sqlite").exists()


@pytest.mark.usefixtures("spark")
def test_views_are_refreshed_explained_and_verified(place: Path) -> None:
    (did,) = as_json(run("refresh", "totals", "-o", "json"))
    assert (did["view"], did["strategy"]) == ("main.totals", "build")
    (did,) = as_json(run("refresh", "--full", "totals", "-o", "json"))
    assert did["strategy"] == "full"
    run("refresh")
    assert as_json(run("explain", "totals", "-o", "json"))["strategy"] == "merge"
    assert "* merge" in run("explain", "totals").stdout
    assert run("verify").stdout.startswith("main.totals: ok, 2 rows")


@pytest.mark.usefixtures("spark")
def test_the_doctor_finds_what_is_wrong(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = as_json(run("doctor", "-o", "json"))
    assert {one["what"] for one in found} == {
        "python", "packages", "java", "catalog", "storage", "spark", "python workers",
    }  # fmt: skip
    assert all(one["ok"] for one in found)
    monkeypatch.setenv("JAVA_HOME", str(place / "nowhere"))
    (place / "lake" / "data").rename(place / "lake" / "elsewhere")
    (place / "lake" / "data").write_text("in the way")
    found = {one["what"]: one for one in as_json(run("doctor", "-o", "json", status=1))}
    assert "apt-get install" in found["java"]["fix"]
    assert "cannot lie in" in found["catalog"]["found"]
    lost = run("doctor", "--lake", "nowhere", "-o", "json", status=1)
    assert "there is no lake" in lost.stdout


def test_help_has_examples_for_everything() -> None:
    listed = run("--help").stdout
    for name in ("demo", "sql", "serve", "status", "load", "explain", "verify", "doctor"):
        assert name in listed
        assert "tailrace " in run(name, "--help").stdout


def test_what_the_catalog_answers_starts_little(place: Path) -> None:
    """Processor time beside that of the libraries alone: seconds are the machine's business."""

    def best(*command: str) -> float:
        times = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(times)

    program = str(Path(sys.executable).with_name("tailrace"))
    libraries = best(sys.executable, "-c", "import pyarrow, sqlalchemy, sqlglot, typer, rich.table")
    assert best(program, "--help") < libraries
    for name in ("status", "jobs", "tables"):
        assert best(program, name) < 3 * libraries


@pytest.mark.parametrize("command", ["status", "jobs", "tables", "views", "snapshots"])
def test_lists_import_neither_spark_nor_pandas(place: Path, command: str) -> None:
    code = (
        "import sys; from tailrace.cli.main import app; "
        f"app(['{command}'], standalone_mode=False); "
        "print([m for m in ('pyspark', 'pandas', 'duckdb', 'structlog') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
