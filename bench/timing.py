"""Takes times: contestants in turn, so that what slows the machine down slows all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

Action = Callable[[], object]
# Makes ready for a round, which is not timed, and returns what is.
Contestant = Callable[[int], Action]


def seconds(action: Action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def alternate(rounds: int, *, warm_up: int = 1, **contestants: Contestant) -> dict[str, float]:
    """The median time of each contestant over the rounds that follow the warm-up.

    Who goes first changes from round to round: the one after a large write pays for its flush.
    """
    gc.collect()
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(-warm_up, rounds):
        order = list(contestants.items())
        for name, contestant in order if number % 2 == 0 else reversed(order):
            action = contestant(number)
            spent = seconds(action)
            if number >= 0:
                taken[name].append(spent)
    return {name: statistics.median(times) for name, times in taken.items()}
