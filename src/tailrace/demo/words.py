"""The words that the shop is made of: people, places and things."""

# ruff: noqa: SIM905  (words read best as words)

from __future__ import annotations

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
