"""A bounded cache in memory: the values that were used last, shared by threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

V = TypeVar("V")


class LruCache(Generic[V]):
    """Keeps the values that were used last, up to a limit on the sum of their sizes.

    The newest is kept however large it is.
    """

    def __init__(self, limit: int, size: Callable[[V], int] = lambda _: 1) -> None:
        self._limit, self._size = limit, size
        self._lock = Lock()
        self._held: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._total = 0

    def get(self, key: Hashable) -> V | None:
        """The value of a key, if it is held."""
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]

    def put(self, key: Hashable, value: V) -> V:
        """Hold a value, unless another thread was faster; returns the one that is held."""
        size = self._size(value)
        with self._lock:
            if key not in self._held:
                self._held[key] = value, size
                self._total += size
            self._held.move_to_end(key)
            held = self._held[key][0]
            while self._total > self._limit and len(self._held) > 1:
                self._total -= self._held.popitem(last=False)[1][1]
        return held

    def replace(self, key: Hashable, value: V) -> None:
        """Hold a value in the place of another."""
        with self._lock:
            if key in self._held:
                self._total -= self._held.pop(key)[1]
        self.put(key, value)

    def get_or_make(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of a key; made outside of the lock, if it is not held."""
        value = self.get(key)
        return self.put(key, make()) if value is None else value

    def values(self) -> list[V]:
        """What is held, from the least to the most recently used."""
        with self._lock:
            return [value for value, _ in self._held.values()]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._held.clear()
            self._total = 0
