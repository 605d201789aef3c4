"""Objects: immutable blobs under a lake's data path, on a local disk or in a bucket."""

from tailrace.objects.storage import Storage

__all__ = ["Storage"]
