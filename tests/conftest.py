"""Fixtures for all tests: one Spark session, servers that start when asked for, lakes."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests.support import children, counted, memory, seeds
from tests.support.lakes import CATALOGS, LakeArgs
from tests.support.postgres import PostgresServer, run_postgres
from tests.support.process import JAVA_OPTIONS
from tests.support.s3 import S3Bucket, create_bucket, run_s3

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from _pytest.terminal import TerminalReporter
    from pyspark.sql import SparkSession

    import tailrace

# A commit's time depends on the machine; what a test asserts does not. The cases are the same at
# every run: what a commit passes must not depend on chance.
hypothesis.settings.register_profile(
    "tailrace",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tailrace")

# For every Spark that is started here, also by the processes of tests.
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)

# Where pytest and the tests make their directories, in all processes of the run.
if "TMPDIR" not in os.environ and (in_memory := memory.place()) is not None:
    os.environ["TMPDIR"] = tempfile.tempdir = str(in_memory)


# --- a run, in one process or in several --------------------------------------------------------


def is_worker(config: pytest.Config) -> bool:
    """Is this one of several processes that share a run's tests?"""
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    if not is_worker(config):
        counted.adopt_orphans()
        if config.option.markexpr == "stress":
            seeds.draw()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.support.sharing import Sharing

    return Sharing(config, log) if config.getoption("dist") == "load" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first: at the end there are short tests to share between processes."""
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    counted.attach(report, call)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    counted.collect(report)


def pytest_sessionfinish() -> None:
    children.end_server()


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Where several processes share the tests, they have ended by now."""
    if made := counted.lines():
        terminalreporter.section(f"random cases, TAILRACE_SEED={seeds.seed()}")
        for line in made:
            terminalreporter.line(line)
    terminalreporter.line(f"CPU minutes: {counted.processor_minutes():.1f}")


# --- fixtures -----------------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Segments are cached in a directory of this run; processes that it starts use it too."""
    before = os.environ.get("TAILRACE_CACHE")
    os.environ["TAILRACE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["TAILRACE_CACHE"]
    else:
        os.environ["TAILRACE_CACHE"] = before


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[SparkSession]:
    """The one Spark session of the run."""
    # What is asked once, over a few rows, is interpreted sooner than compiled. Spark compiles as it
    # does elsewhere in `make stress`, and on a cluster and through Connect (`test_other_sparks`).
    compiles = pytestconfig.option.markexpr == "stress"
    # The workers have to be this interpreter, and everything stays on the loopback interface.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    directory = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tailrace-tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.sql.codegen.wholeStage", str(compiles).lower())
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    # PySpark would leave it to end by itself, some time after this process.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this run's own."""
    with run_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a fresh database."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of an S3 server of this run's own."""
    with run_s3(tmp_path_factory.mktemp("s3")) as endpoint:
        yield endpoint


@pytest.fixture
def s3_bucket(s3_server: str) -> S3Bucket:
    """A fresh bucket."""
    return create_bucket(s3_server)


@pytest.fixture(params=CATALOGS)
def catalog(request: pytest.FixtureRequest) -> str:
    """Each kind of catalog in turn."""
    return str(request.param)


@pytest.fixture
def new_lake_args(
    catalog: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[], LakeArgs]]:
    """A function that makes place for one more lake: for tests that need several or many."""
    numbers = itertools.count(1)
    databases: list[str] = []
    # Asked for by name, so that a run on SQLite alone starts no PostgreSQL.
    server: PostgresServer | None = None
    if catalog == "postgres":
        server = request.getfixturevalue("postgres_server")

    def make() -> LakeArgs:
        directory = tmp_path / f"lake{next(numbers)}"
        if server is None:
            return LakeArgs(catalog=catalog, url=str(directory))
        databases.append(server.create_database())
        return LakeArgs(catalog=catalog, url=server.url(databases[-1]), data=str(directory))

    yield make
    if server is not None:
        for name in databases:
            server.drop_database(name)


@pytest.fixture
def lake_args(new_lake_args: Callable[[], LakeArgs]) -> LakeArgs:
    """Where a fresh lake can be made, on each kind of catalog in turn."""
    return new_lake_args()


@pytest.fixture
def lake(lake_args: LakeArgs, spark: SparkSession) -> Iterator[tailrace.Lake]:
    """A fresh, open lake, on each kind of catalog in turn."""
    with lake_args.connect(spark=spark) as lake:
        yield lake


@pytest.fixture
def sqlite_lake_args(tmp_path: Path) -> LakeArgs:
    """Where a fresh lake in a directory can be made."""
    return LakeArgs(catalog="sqlite", url=str(tmp_path / "lake"))


@pytest.fixture
def sqlite_lake(sqlite_lake_args: LakeArgs, spark: SparkSession) -> Iterator[tailrace.Lake]:
    """A fresh, open lake in a directory, where the kind of catalog does not matter."""
    with sqlite_lake_args.connect(spark=spark) as lake:
        yield lake
