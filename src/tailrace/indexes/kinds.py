"""The kinds of indexes there are."""

from __future__ import annotations

from tailrace.indexes.kind import IndexKind
from tailrace.indexes.text.kind import FullText
from tailrace.indexes.vectors.kind import Vector

KINDS: dict[str, IndexKind] = {kind.name: kind for kind in (FullText(), Vector())}
