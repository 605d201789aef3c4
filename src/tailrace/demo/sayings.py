"""What people say of products, and what products are like: reviews and vectors.

Always true: both follow from what is passed in, so that the shop and its writer agree.
"""

from __future__ import annotations

import zlib
from random import Random

import numpy as np

from tailrace.demo import words

DIMENSION = 32
# How much each part of a product adds to its likeness.
_THING, _MATERIAL, _CATEGORY = 1.0, 0.8, 0.6


def review(random: Random, product: str) -> tuple[int, str]:
    """The stars and the text of a review; most people are content."""
    (stars,) = random.choices((1, 2, 3, 4, 5), (6, 8, 14, 32, 40))
    praise = {1: 0, 2: 0, 3: 1, 4: 1, 5: 2}[stars]
    complaints = {1: 2, 2: 1, 3: 1, 4: 0, 5: 0}[stars]
    said = [
        random.choice(words.VERDICTS[stars]).format(name=product.lower()),
        *random.sample(words.PRAISE, praise),
        *random.sample(words.COMPLAINTS, complaints),
    ]
    return stars, " ".join(said)


def vector(name: str, category: str) -> list[float]:
    """An embedding of a product: those that have much in common are near."""
    material, _, rest = name.partition(" ")
    thing = rest.rstrip("0123456789 ")
    mixed = (
        _THING * _direction(thing.lower())
        + _MATERIAL * _direction(material.lower())
        + _CATEGORY * _direction(category)
    )
    return [float(number) for number in np.round(mixed, 3)]


def _direction(word: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Some direction, always the same for a word."""
    random = np.random.default_rng(zlib.crc32(word.encode()))
    direction: np.ndarray[tuple[int], np.dtype[np.float64]] = random.normal(size=DIMENSION)
    return direction / float(np.linalg.norm(direction))
