"""The file of rejected rows: CSV, so that it can be read, mended and loaded."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import astuple, fields
from pathlib import Path

from tailrace.errors import InvalidError
from tailrace.loading.rows import Rejected


def check_path(path: Path) -> None:
    """Raise if the report can't be written, before the work is done."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InvalidError(f"the report cannot be written to {path}: name a file in a directory")


def write_report(path: Path, rejected: Iterable[Rejected]) -> None:
    """Write all rejected rows; only a header if there are none."""
    try:
        with path.open("w", encoding="utf-8", newline="") as handle:
            rows = csv.writer(handle, lineterminator="\n")
            rows.writerow(field.name for field in fields(Rejected))
            rows.writerows(astuple(one) for one in rejected)
    except OSError as error:
        raise InvalidError(f"the report cannot be written to {path}: {error.strerror}") from error
