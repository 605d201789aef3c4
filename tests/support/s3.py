"""An S3 server for one test run: a process of its own that speaks the protocol over HTTP."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support import process

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from obstore.store import S3Store


@dataclass(frozen=True, kw_only=True)
class S3Bucket:
    """A bucket, and all that a client needs to reach it."""

    endpoint: str  # http://127.0.0.1:port
    bucket: str
    access_key: str = "test"
    secret_key: str = "test"
    region: str = "us-east-1"

    def url(self, prefix: str = "") -> str:
        """The address of a prefix in the bucket."""
        return f"s3://{self.bucket}/{prefix}".rstrip("/")

    @property
    def environment(self) -> dict[str, str]:
        """The variables from which clients usually take their settings."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ALLOW_HTTP": "true",
        }

    def store(self, prefix: str | None = None) -> S3Store:
        """The bucket, or a prefix of it, as an object store."""
        from obstore.store import S3Store

        return S3Store(
            self.bucket,
            prefix=prefix,
            endpoint=self.endpoint,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            region=self.region,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )


@contextlib.contextmanager
def run_s3(directory: Path) -> Iterator[str]:
    """Run a server while the block lasts; yields its endpoint."""

    def start_on(port: int) -> subprocess.Popen[bytes]:
        return process.start(
            [sys.executable, "-m", "moto.server", "-H", process.HOST, "-p", str(port)],
            ready=lambda: process.listens(port),
            log=directory / "s3.log",
            env={**os.environ, "MOTO_ALLOW_NONEXISTENT_REGION": "true"},
        )

    server, port = process.start_on_free_port(start_on)
    try:
        yield f"http://{process.HOST}:{port}"
    finally:
        process.stop(server)


def create_bucket(endpoint: str) -> S3Bucket:
    """A new, empty bucket."""
    import boto3
    from botocore.config import Config

    bucket = S3Bucket(endpoint=endpoint, bucket=f"t-{uuid.uuid4().hex}")
    client = boto3.client(
        "s3",
        endpoint_url=bucket.endpoint,
        aws_access_key_id=bucket.access_key,
        aws_secret_access_key=bucket.secret_key,
        region_name=bucket.region,
        config=Config(proxies={}),
    )
    client.create_bucket(Bucket=bucket.bucket)
    client.close()
    return bucket
