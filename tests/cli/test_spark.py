"""What commands and the demo do beside Spark: threads, and standard error turned aside."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tailrace.cli.spark import in_background, stderr_aside


def test_work_in_the_background_gives_its_value_or_its_error() -> None:
    assert in_background(lambda: 7).result(10) == 7
    with pytest.raises(ZeroDivisionError):
        in_background(lambda: 1 // 0).result(10)


def test_standard_error_is_turned_aside_for_processes_too(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with stderr_aside() as (aside, real):
        os.write(2, b"from here\n")
        child = "import sys; sys.stderr.write('from a child')"
        subprocess.run([sys.executable, "-c", child], check=True)
        print("to the reader", file=real, flush=True)
        aside.seek(0)
        assert aside.read() == b"from here\nfrom a child"
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "to the reader\nafterwards\n"
