"""Servers that a test run starts for itself, on a free loopback port, and stops again.

What always holds: only processes started here are signalled; a server that dies early or is not
ready in time is an error that shows the end of its log.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

HOST = "127.0.0.1"
# A Spark of the tests lives for a short while and asks most queries once: compiling them well and
# collecting garbage beside the work would take more time than it saves. Compiled that way, code has
# little room by default, and once that is full all else is interpreted. With room for young objects
# from the start, most die before anyone collects them. Spark's own classes need no verification.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m -Xms1g -Xmn400m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


class ServerFailedError(RuntimeError):
    """A server ended or did not answer in time."""


def free_port() -> int:
    """A port that nobody listens on; another process may still take it first."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], object], *, what: str, timeout: float = 60.0) -> None:
    """Return as soon as the condition is true; fail when it is not in time."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} seconds")
        time.sleep(0.02)


def listens(port: int) -> bool:
    """Does somebody accept connections on the port?"""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def start(
    command: list[str], *, ready: Callable[[], bool], log: Path, **popen: Any
) -> subprocess.Popen[bytes]:
    """Start a server, and return when it is ready."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            _ending_with_us(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            **popen,
        )
    try:
        # A process that ended is the end of waiting too: it will not get ready any more.
        wait_until(lambda: process.poll() is not None or ready(), what=command[0])
    except BaseException:
        stop(process)
        raise
    if process.poll() is not None:
        raise ServerFailedError(f"{command} ended:\n{log.read_text(errors='replace')[-2000:]}")
    return process


def start_on_free_port(start_on: Callable[[int], subprocess.Popen[bytes]]) -> tuple[Any, int]:
    """Start a server on a free port, and on another when somebody was faster to take it."""
    for attempt in range(3):
        port = free_port()
        try:
            return start_on(port), port
        except ServerFailedError:
            if attempt == 2:
                raise
    raise AssertionError


def stop(
    process: subprocess.Popen[bytes],
    signals: Iterable[signal.Signals] = (signal.SIGTERM, signal.SIGKILL),
) -> None:
    """End the process, by each signal in turn until one worked."""
    for number in signals:
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            continue


def _ending_with_us(command: list[str]) -> list[str]:
    # A test run that is killed outright runs no clean-up; the kernel then ends the server.
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "INT", "--", *command] if setpriv else command
