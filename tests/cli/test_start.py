"""Commands that only list start fast: they import what they use, and no engine."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tailrace

ENGINES = {
    "duckdb", "faiss", "fsspec", "numpy", "obstore", "pandas", "psycopg", "py4j", "pyarrow",
    "pyspark", "sqlglot", "tantivy",
}  # fmt: skip
RUN = """
import sys
from tailrace.cli.main import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("start") / "lake")
    with tailrace.connect(place) as lake:
        lake.create_table("orders", {"id": "bigint", "note": "string"}, primary_key="id")
        lake.table("orders").append([{"id": 1, "note": "one"}])
        lake.create_view("large", "SELECT id FROM orders WHERE id > 100")
        lake.create_index("orders", "note_ft", using="fulltext", columns=["note"])
        lake.jobs.register("orders", "copy", {"consumer": {"kind": "replica", "table": "copies"}})
    return place


def loaded_by(*arguments: str) -> tuple[str, set[str]]:
    """What a command prints, and the modules that its process has imported at its end."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=True
    )
    return ran.stdout, set(ran.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("command", "shows"),
    [
        ("tables", "main.orders"), ("status", "note_ft"), ("jobs", "replica"),
        ("views", "main.large"), ("indexes", "fulltext"), ("iterations", "strategy"),
        ("snapshots", "inserted_into_table"), ("tasks", "attempts"),
    ],
)  # fmt: skip
def test_a_list_loads_no_engine(place: str, command: str, shows: str) -> None:
    printed, modules = loaded_by(command, "--lake", place)
    assert shows in printed
    assert "sqlalchemy" in modules
    assert modules & {*ENGINES, "sqlalchemy.dialects.postgresql"} == set()


def test_help_loads_no_catalog_either() -> None:
    printed, modules = loaded_by("--help")
    assert "tables" in printed
    assert modules & {*ENGINES, "sqlalchemy"} == set()


def test_a_command_that_needs_an_engine_is_seen_to_load_it(place: str) -> None:
    printed, modules = loaded_by("sql", "--lake", place, "--command", "SHOW TABLES")
    assert "main.orders" in printed
    assert {"pyarrow", "sqlglot"} <= modules


def test_the_package_alone_loads_no_catalog() -> None:
    names = "import sys, tailrace; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", names], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) & {*ENGINES, "sqlalchemy"} == set()


def test_a_command_leaves_its_memory_to_the_system(place: str) -> None:
    report = "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 10_000))"
    code = f"{report}\nfrom tailrace.cli.main import main\nmain()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "tables", "--lake", place],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.splitlines()[-1] == "True"
