"""How a test opens a lake: the same tests run over every catalog."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy.engine import make_url

if TYPE_CHECKING:
    from datetime import timedelta

    import tailrace

CATALOGS = ("sqlite", "postgres")


def configure(lake: tailrace.Lake, **changes: timedelta) -> None:
    """Like `lake.configure`, but also below what it allows: tests have no time."""
    from tailrace.catalog import configuration

    with lake.runtime.database.lock() as connection:
        configuration.write(connection, replace(configuration.read(connection), **changes))


@dataclass(frozen=True, kw_only=True)
class LakeArgs:
    """The arguments of `tailrace.connect` for one lake; text, so that other processes take them."""

    catalog: str  # one of CATALOGS
    url: str  # a directory (SQLite), or the address of a PostgreSQL database
    data: str | None = None  # None: the directory's own `data/`

    def connect(self, **options: Any) -> tailrace.Lake:
        """Open the lake."""
        import tailrace

        if self.data is not None:
            options.setdefault("data", self.data)
        return tailrace.connect(self.url, **options)

    @property
    def catalog_file(self) -> Path:
        """The SQLite file of a lake in a directory."""
        assert self.catalog == "sqlite", self.catalog
        return Path(self.url) / "catalog.sqlite"

    @property
    def data_directory(self) -> Path:
        """Where the objects are, for a lake with local objects."""
        return Path(self.data) if self.data is not None else Path(self.url) / "data"

    @property
    def conninfo(self) -> str:
        """The PostgreSQL catalog in libpq's words."""
        assert self.catalog == "postgres", self.catalog
        url = make_url(self.url)
        parts = {"host": url.host, "port": url.port, "user": url.username, "dbname": url.database}
        return " ".join(f"{key}={value}" for key, value in parts.items() if value is not None)
