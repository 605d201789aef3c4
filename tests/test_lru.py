"""The bounded cache."""

from __future__ import annotations

import threading

from tailrace.lru import LruCache


def test_what_was_used_least_recently_goes_first() -> None:
    cache: LruCache[str] = LruCache(2)
    cache.put(1, "a")
    cache.put(2, "b")
    assert cache.get(1) == "a"
    cache.put(3, "c")
    assert cache.get(2) is None
    assert cache.values() == ["a", "c"]


def test_the_limit_is_on_the_sum_of_sizes() -> None:
    cache: LruCache[str] = LruCache(5, len)
    for text in ("aa", "bb", "ccc"):
        cache.put(text, text)
    assert cache.values() == ["bb", "ccc"]


def test_a_value_that_is_larger_than_the_limit_is_kept_until_the_next() -> None:
    cache: LruCache[str] = LruCache(3, len)
    cache.put(1, "abcdef")
    assert cache.get(1) == "abcdef"
    cache.put(2, "a")
    assert cache.values() == ["a"]


def test_the_first_of_two_values_for_a_key_stays() -> None:
    cache: LruCache[list[int]] = LruCache(10, len)
    first, second = [1, 2], [1, 2]
    assert cache.put("k", first) is first
    assert cache.put("k", second) is first
    cache.put("l", [0] * 8)
    assert len(cache.values()) == 2  # it counts once


def test_threads_that_miss_at_once_get_the_same_value() -> None:
    cache: LruCache[object] = LruCache(10)
    ready = threading.Barrier(4)
    got: list[object] = []

    def ask() -> None:
        ready.wait()
        got.append(cache.get("k") or cache.put("k", object()))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, got))) == 1


def test_nothing_is_held_after_it_was_cleared() -> None:
    cache: LruCache[str] = LruCache(2)
    cache.put(1, "a")
    cache.clear()
    assert cache.get(1) is None
    assert cache.values() == []


def test_a_value_is_made_only_if_it_is_not_held() -> None:
    cache: LruCache[str] = LruCache(2)
    assert cache.get_or_make(1, lambda: "a") == "a"
    assert cache.get_or_make(1, lambda: "b") == "a"
