"""The words that the shop is made of: people, places, things, and what is said of them.

Reviews and vectors follow from what is passed in, so that the shop and its writer agree.
"""

# ruff: noqa: SIM905  (words read best as words)

from __future__ import annotations

import zlib
from random import Random

import numpy as np

FIRST_NAMES = (
    "Ada Bela Carla Dario Edith Farid Greta Hugo Ines Jonas Kaya Liam Maja Nils Olga Pablo Quinn "
    "Rosa Sami Tove Uma Viktor Wanda Xenia Yann Zoe Anouk Bruno Celia Dmitri Elif Felix"
).split()
LAST_NAMES = (
    "Almeida Bergström Castelli Dubois Eriksen Fischer Gallo Horvat Ivanova Jansen Kowalski "
    "Lindqvist Moreau Novak Okafor Petrov Quiroga Rossi Santos Tanaka Ullmann Vermeer Weber Yilmaz"
).split()
# Larger ones first: the earlier a city stands here, the more customers it has.
CITIES = ("Lyon", "Turin", "Porto", "Utrecht", "Kraków", "Malmö", "Ghent", "Graz", "Brno", "Cork")
MADE_OF = (
    "Oak Cotton Steel Bamboo Copper Linen Ceramic Walnut Wool Glass Brass Cork Slate Leather "
    "Enamel Rattan"
).split()
# What each category sells, and what its cheapest thing costs.
CATEGORIES = {
    "kitchen": (6, "Bowl Kettle Ladle Mug Pan Plate Teapot Whisk".split()),
    "garden": (9, "Bench Lantern Planter Rake Shears Trellis Trowel Watering-can".split()),
    "home": (15, "Basket Blanket Candle Clock Lamp Mirror Shelf Vase".split()),
    "office": (4, "Binder Bookend Calendar Desk-tray Folder Notebook Pen Stand".split()),
    "sports": (12, "Ball Dumbbell Mat Paddle Racket Rope Skateboard Sled".split()),
    "toys": (7, "Abacus Blocks Castle Kite Puppet Puzzle Robot Train".split()),
    "travel": (20, "Backpack Flask Hammock Map-case Pouch Suitcase Tent Umbrella".split()),
}
# Sentences of reviews. No word in them is another form of one that the demo searches for, so that
# what contains the word is what has to be found.
PRAISE = (
    "Sturdy, and it looks good.",
    "A lovely gift, my sister was delighted.",
    "Worth every cent.",
    "The colour is even nicer than in the picture.",
    "Well made, and quick to clean.",
    "I use it every day.",
    "It arrived a day early, and well packed.",
    "Light, simple and sturdy.",
    "The finish is smooth, without a flaw.",
    "Would buy it again, and recommend it to friends.",
)
COMPLAINTS = (
    "It arrived late, and nobody could say why.",
    "One side was scratched when I opened the box.",
    "Smaller than I expected.",
    "Broken after a week; I asked for a refund.",
    "The colour fades in the sun.",
    "It smells of glue, even after days.",
    "Too heavy for what it is.",
    "The box was torn, and a screw was missing.",
)
# How a review begins, by its stars.
VERDICTS = {
    1: ("Never again: this {name}.", "I sent the {name} back."),
    2: ("The {name} is a disappointment.", "I hoped for more from this {name}."),
    3: ("The {name} is all right.", "A {name} like others."),
    4: ("A good {name}.", "The {name} does what it should."),
    5: ("I love this {name}.", "Just the {name} that I was looking for."),
}
# What the demo searches reviews for.
SEARCHES = ("sturdy", "scratched", "refund", '"arrived late"', "gift")


DIMENSION = 32
# How much each part of a product adds to its likeness.
_THING, _MATERIAL, _CATEGORY = 1.0, 0.8, 0.6


def review(random: Random, product: str) -> tuple[int, str]:
    """The stars and the text of a review; most people are content."""
    (stars,) = random.choices((1, 2, 3, 4, 5), (6, 8, 14, 32, 40))
    praise = {1: 0, 2: 0, 3: 1, 4: 1, 5: 2}[stars]
    complaints = {1: 2, 2: 1, 3: 1, 4: 0, 5: 0}[stars]
    said = [
        random.choice(VERDICTS[stars]).format(name=product.lower()),
        *random.sample(PRAISE, praise),
        *random.sample(COMPLAINTS, complaints),
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
