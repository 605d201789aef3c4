"""`tailrace doctor`: what Tailrace needs, checked one by one, each with the fix."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.cli.options import existing
from tailrace.cli.printing import console, document, message_of, say
from tailrace.errors import TailraceError

if TYPE_CHECKING:
    from tailrace.lake import Lake

_PARTS = ("pyspark", "pyarrow", "pandas", "sqlalchemy", "sqlglot", "duckdb", "obstore")
_OLDEST_JAVA = 17


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check."""

    what: str
    ok: bool
    found: str
    fix: str = ""  # what to do, if it is not ok


class WrongError(Exception):
    """A check that failed: what it found, and the fix."""

    def __init__(self, found: str, fix: str) -> None:
        super().__init__(found)
        self.found, self.fix = found, fix

    def finding(self, what: str) -> Finding:
        """The result of the check."""
        return Finding(what=what, ok=False, found=self.found, fix=self.fix)


def examine(place: str | None, *, as_json: bool) -> bool:
    """Run all checks and print their results; True if all is well."""
    findings = []
    where = console()
    for finding in _findings(place):
        findings.append(finding)
        if not as_json:
            mark = "[green]ok[/]  " if finding.ok else "[red]bad[/] "
            where.print(f"{mark} {finding.what:<16}", end="")
            where.print(finding.found, markup=False)
            if finding.fix:
                where.print(f"      fix: {finding.fix}", markup=False)
    if as_json:
        document([asdict(finding) for finding in findings])
    bad = [finding for finding in findings if not finding.ok]
    if bad and not as_json:
        say(f"{len(bad)} of {len(findings)} checks failed")
    return not bad


def _findings(place: str | None) -> Iterator[Finding]:
    yield _checked("python", _python)
    yield _checked("packages", _packages)
    java = _checked("java", _java)
    yield java
    with ExitStack() as stack:
        try:
            lake, found = _open(place, stack)
        except WrongError as error:
            yield error.finding("catalog")
            return
        yield Finding(what="catalog", ok=True, found=found)
        yield _checked("nodes", lambda: _nodes(lake))
        yield _checked("storage", lambda: _storage(lake))
        spark = _checked("spark", lambda: _spark(lake, has_java=java.ok))
        yield spark
        if spark.ok:
            yield _checked("python workers", lambda: _workers(lake))


def _checked(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what=what, ok=True, found=check())
    except WrongError as error:
        return error.finding(what)
    except Exception as error:  # noqa: BLE001  (whatever it is, it is what the doctor is for)
        first = message_of(error).strip().partition("\n")[0] or type(error).__name__
        return Finding(what=what, ok=False, found=first, fix="see the message")


def _python() -> str:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036  (this is what tells people)
        raise WrongError(found, "install Python 3.11 or newer")
    return f"{found}, {sys.executable}"


def _packages() -> str:
    found = []
    for name in _PARTS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            raise WrongError(f"{name} is missing", f"pip install {name}") from None
    return ", ".join(found)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java"
        raise WrongError(
            where, f"install Java {_OLDEST_JAVA} or newer (apt-get install openjdk-17-jre-headless)"
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    number = re.search(r'version "(\d+)', said)
    if number is None or int(number[1]) < _OLDEST_JAVA:
        raise WrongError(
            said.splitlines()[0] if said else f"{java} does not run",
            f"install Java {_OLDEST_JAVA} or newer, and set JAVA_HOME to it",
        )
    return f"{number[1]}, {java}"


def _open(place: str | None, stack: ExitStack) -> tuple[Lake, str]:
    """The lake to check, and what it is; if there is none, a temporary one. The stack closes it."""
    from tailrace.lake import connect

    try:
        name = existing(place)
    except TailraceError as error:
        if place is not None:
            raise WrongError(message_of(error), "check --lake") from error
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-doctor-"))
        lake = stack.enter_context(connect(directory))
        return lake, "no lake here: a new one in a temporary directory works"
    try:
        lake = stack.enter_context(connect(name))
    except TailraceError as error:
        fix = "check the address, and that the server runs"
        raise WrongError(message_of(error), fix) from error
    kind = "PostgreSQL" if "://" in name else "SQLite"
    return lake, f"{kind}, snapshot {lake.snapshot}, {len(lake.tables())} tables"


def _nodes(lake: Lake) -> str:
    """Whether a process that serves the lake has stopped taking work."""
    nodes = lake.nodes()
    faults = [f"{node.host}, {node.pid}: {node.fault}" for node in nodes if node.fault]
    if faults:
        raise WrongError(
            "; ".join(faults), "see the log of that process, and restart it if need be"
        )
    return f"{len(nodes)} serve the lake" if nodes else "none: run tailrace serve"


def _storage(lake: Lake) -> str:
    """Write, read and delete an object."""
    storage = lake.runtime.storage
    name = f"tailrace-doctor-{os.getpid()}"
    try:
        with storage.open_write(name) as sink:
            sink.native.write(b"well")
        with storage.open_read(name) as source:
            same = source.read() == b"well"
        storage.delete([name])
    except TailraceError as error:
        fix = "check that the place exists, and the credentials (AWS_ACCESS_KEY_ID, …)"
        raise WrongError(message_of(error), fix) from error
    if not same:
        raise WrongError("an object that was written reads differently", "use another storage")
    return f"{storage.data_path}: written, read and deleted"


def _spark(lake: Lake, *, has_java: bool) -> str:
    from tailrace.cli.spark import working

    if not has_java:
        raise WrongError("not tried", "fix java first")
    with working(lake):
        session = lake.spark
        count = session.range(1000).count()
    if count != 1000:
        raise WrongError(f"it counts 1000 rows as {count}", "reinstall pyspark")
    return f"{session.version}, {session.conf.get('spark.master', 'remote')}"


def _workers(lake: Lake) -> str:
    """Whether an executor's Python has what a task imports."""

    def task(batches: Any) -> Any:
        import sys as remote

        import pyarrow as pa

        import tailrace.store.write  # noqa: F401

        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"python": [remote.version.split()[0]]})

    try:
        rows = lake.spark.range(2).mapInArrow(task, "python string").toArrow().to_pylist()
    except Exception as error:
        missing = re.search(r"No module named '([\w.]+)'", str(error))
        found = f"a task cannot import {missing[1]}" if missing else str(error).splitlines()[0]
        fix = "install tailrace for the executors' Python, and set PYSPARK_PYTHON to that"
        raise WrongError(found, fix) from error
    return f"Python {rows[0]['python']} imports what tasks need"
