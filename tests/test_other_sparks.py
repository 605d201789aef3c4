"""What works on local Spark works on a cluster and through Spark Connect: a short subset.

The checks are in `tests/support/other_spark.py`. Each kind runs them in a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import tailrace
from tailrace.store.spark_session import is_configured
from tests.support import process
from tests.support.other_spark import CLUSTER, CONNECT, LARGE, LIMIT, SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "spark.driver.bindAddress": process.HOST,
    "spark.driver.host": process.HOST,
    "spark.driver.memory": "1g",
    "spark.executor.extraJavaOptions": process.JAVA_OPTIONS,
    "spark.executor.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables of a process with a Spark of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    return {
        **kept,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "SPARK_HOME": str(spark_home(tmp_path / "home")),
        "SPARK_LOCAL_IP": process.HOST,
        "SPARK_SUBMIT_OPTS": process.JAVA_OPTIONS,
    }


def spark_home(directory: Path) -> Path:
    """PySpark's directory, but one in which the executors may leave what they write."""
    directory.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (directory / entry.name).symlink_to(entry)
    return directory


def configure(directory: Path, more: dict[str, str]) -> None:
    """Settings for every Spark that is started with the environment."""
    (directory / "conf").mkdir()
    places = {"spark.local.dir": "local", "spark.sql.warehouse.dir": "warehouse"}
    every = {**SETTINGS, **{name: str(directory / place) for name, place in places.items()}, **more}
    text = "".join(f"{name} {value}\n" for name, value in every.items())
    (directory / "conf" / "spark-defaults.conf").write_text(text)


def run_checks(kind: str, directory: Path, environment: dict[str, str], *ways: str) -> None:
    command = [sys.executable, "-m", "tests.support.other_spark", kind, str(directory), *ways]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT + 20,
        check=False,
        text=True,
    )
    assert done.returncode == 0, f"{kind}:\n{shown(done.stdout)}"


def shown(output: str) -> str:
    """What a program wrote, without Java's part of it."""
    lines = [line[:300] for line in output.splitlines() if not line.startswith("\tat ")]
    return "\n".join(lines[-80:])


@pytest.mark.early
def test_a_cluster_of_separate_executors(tmp_path: Path, environment: dict[str, str]) -> None:
    configure(tmp_path, {"spark.master": "local-cluster[2,1,2048]"})
    run_checks(CLUSTER, tmp_path, environment, LARGE)


@contextmanager
def connect_server(
    directory: Path, environment: dict[str, str]
) -> Iterator[tuple[int, Callable[[], None]]]:
    """A Connect server: its port, and how to kill it and start it again there."""

    def start_on(port: int) -> subprocess.Popen[bytes]:
        settings = {"address": process.HOST, "port": port}
        options = [
            part
            for name, value in settings.items()
            for part in ("--conf", f"spark.connect.grpc.binding.{name}={value}")
        ]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        submit = str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit")
        return process.start(
            [submit, "--class", server, *options, "spark-internal"],
            ready=lambda: process.listens(port),
            log=directory / "server.log",
            env=environment,
        )

    server, port = process.start_on_free_port(start_on)

    def again() -> None:
        nonlocal server
        process.stop(server, (signal.SIGKILL,))
        server = start_on(port)

    try:
        yield port, again
    finally:
        process.stop(server)


# Large plans are one more build and refresh, of the kind that the cluster runs.
@pytest.mark.early
@pytest.mark.parametrize("ways", [[SMALL], pytest.param([SMALL, LARGE], marks=pytest.mark.stress)])
def test_spark_connect(tmp_path: Path, environment: dict[str, str], ways: list[str]) -> None:
    configure(tmp_path, {"spark.master": "local[2]"})
    with connect_server(tmp_path, environment) as (port, _):
        remote = {"SPARK_REMOTE": f"sc://{process.HOST}:{port}"}
        run_checks(CONNECT, tmp_path, {**environment, **remote}, *ways)


@pytest.mark.stress
def test_a_node_works_again_after_its_connect_server_was_killed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    configure(tmp_path, {"spark.master": "local[2]"})
    with (
        connect_server(tmp_path, environment) as (port, again),
        tailrace.connect(tmp_path / "lake") as lake,
    ):
        table = lake.create_table("orders", {"id": "bigint"}, primary_key="id")
        lake.create_table("seen", {"rows": "bigint"})
        lake.jobs.register("orders", "seen", {"consumer": {"kind": "counted_by_spark"}})
        command = [sys.executable, "-m", "tests.support.connect_node", str(tmp_path / "lake")]
        remote = {"SPARK_REMOTE": f"sc://{process.HOST}:{port}"}
        node = process.start(
            command,
            ready=lake.is_served,
            log=tmp_path / "node.log",
            cwd=ROOT,
            env={**environment, **remote},
        )

        def is_fresh() -> bool:
            return lake.jobs.status("orders", "seen").is_fresh

        try:
            table.append([{"id": 1}])
            process.wait_until(is_fresh, what="a first run", timeout=120)
            again()
            table.append([{"id": 2}])
            process.wait_until(is_fresh, what="its recovery", timeout=120)
        finally:
            process.stop(node)
        assert sum(row["rows"] for row in lake.table("seen").to_arrow().to_pylist()) == 2
        assert {done.error for done in lake.jobs.history()} == {None}


@pytest.mark.parametrize(
    ("variables", "file", "configured"),
    [
        ({}, "", False),
        ({"SPARK_REMOTE": "sc://host"}, "", True),
        ({"PYSPARK_GATEWAY_PORT": "1234"}, "", True),  # under spark-submit
        ({"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, "", True),
        ({"PYSPARK_SUBMIT_ARGS": "--packages a:b:1 pyspark-shell"}, "", False),
        ({}, "# spark.master local\nspark.ui.enabled  false\n", False),
        ({}, "spark.ui.enabled false\nspark.master  spark://host:7077\n", True),
    ],
)
def test_a_session_of_ones_own_is_started_only_if_nobody_said_where_spark_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    file: str,
    configured: bool,
) -> None:
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "spark-defaults.conf").write_text(file)
    for name, value in {"SPARK_CONF_DIR": str(tmp_path), **variables}.items():
        monkeypatch.setenv(name, value)
    assert is_configured() is configured
