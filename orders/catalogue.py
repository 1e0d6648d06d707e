"""The demo's products and categories, as data. `manage.py seed_catalogue` puts them into the catalogue.

`made_up` makes as many more as are wanted, to try the shop at the size of a real catalogue.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from itertools import islice, product
from typing import NamedTuple

from orders.parcels.splitting import USUAL_WAREHOUSE


class Article(NamedTuple):
    """One product with its initial values; `picture` is a path among the static files. The plants have a warehouse of their own."""

    sku: str
    category: str
    name: str
    price: Decimal
    description: str
    picture: str
    available: int = 100_000
    warehouse: str = USUAL_WAREHOUSE


def _article(sku: str, category: str, name: str, price: str, description: str, warehouse: str = USUAL_WAREHOUSE) -> Article:
    return Article(sku, category, name, Decimal(price), description, f"orders/products/{sku.lower()}.svg", warehouse=warehouse)


# By their addresses.
CATEGORIES = {"kitchen": "Kitchen", "desk": "Desk", "living": "Living room", "light": "Light and scent", "on-the-way": "On the way"}

ARTICLES = (
    _article(
        "MUG-BLUE",
        "kitchen",
        "Blue stoneware mug",
        "12.90",
        "Thrown by hand and glazed in a deep harbour blue. Holds 35 cl and keeps them warm. Goes into the dishwasher.",
    ),
    _article(
        "TEAPOT-SAND",
        "kitchen",
        "Sand teapot",
        "38.00",
        "A round pot for four cups, with a spout that does not drip. The fine steel strainer lifts out with the lid.",
    ),
    _article(
        "NOTEBOOK-A5",
        "desk",
        "Dotted notebook, A5",
        "9.50",
        "192 numbered pages of cream paper that ink does not go through, bound in cloth. Lies flat from the first page.",
    ),
    _article(
        "PENCILS-12",
        "desk",
        "Twelve colour pencils",
        "14.20",
        "Cedar, with soft cores that can be layered. They come in the clay cup they live in.",
    ),
    _article(
        "TOTE-OCHRE",
        "on-the-way",
        "Ochre canvas tote",
        "18.00",
        "Heavy organic cotton with handles long enough for a winter coat. Carries fifteen kilos of market day.",
    ),
    _article(
        "LAMP-DESK",
        "light",
        "Brass desk lamp",
        "79.00",
        "Two joints, one switch, warm light. Solid brass that is allowed to darken with the years. LED bulb included.",
    ),
    _article(
        "PLANT-MONSTERA",
        "living",
        "Monstera in a clay pot",
        "32.50",
        "Forty centimetres of patience. Likes a bright corner and a glass of water a week; forgives holidays.",
        "greenhouse",
    ),
    _article(
        "CANDLE-FIG",
        "light",
        "Fig candle",
        "21.00",
        "Rapeseed wax and a cotton wick. Burns for about forty hours and smells of leaves rather than of sugar.",
    ),
    _article(
        "CLOCK-WALL",
        "living",
        "Quiet wall clock",
        "45.00",
        "A sweeping movement in an oak ring: no ticking. Thirty centimetres across, runs a year on one battery.",
    ),
    _article(
        "BOARD-OAK",
        "kitchen",
        "Oak chopping board",
        "34.90",
        "Cut from one plank and oiled three times. Two centimetres thick, with a hole to hang it up by.",
    ),
    _article(
        "FLASK-STEEL",
        "on-the-way",
        "Steel flask",
        "27.40",
        "Half a litre, hot for twelve hours or cold for twenty-four. The cap is a cup, and there is nothing to rattle.",
    ),
    _article(
        "CUSHION-LINEN",
        "living",
        "Striped linen cushion",
        "29.00",
        "Washed linen in the colour of roof tiles, with a feather filling. Forty-five centimetres; the cover comes off.",
    ),
)

# What made-up products are made of. The thing decides about category, picture and price.
_COLOURS = (
    "Blue",
    "Sand",
    "Ochre",
    "White",
    "Black",
    "Green",
    "Red",
    "Grey",
    "Rose",
    "Plum",
    "Mint",
    "Rust",
    "Ivory",
    "Navy",
    "Olive",
    "Coral",
)
_MATERIALS = (
    "stoneware",
    "oak",
    "linen",
    "steel",
    "brass",
    "cotton",
    "glass",
    "walnut",
    "wool",
    "cork",
    "marble",
    "bamboo",
    "leather",
    "felt",
)
_SIZES = ("small", "medium", "large", "extra large")
_THINGS = {
    "mug": "MUG-BLUE",
    "teapot": "TEAPOT-SAND",
    "board": "BOARD-OAK",
    "notebook": "NOTEBOOK-A5",
    "pencil cup": "PENCILS-12",
    "lamp": "LAMP-DESK",
    "candle": "CANDLE-FIG",
    "clock": "CLOCK-WALL",
    "cushion": "CUSHION-LINEN",
    "plant pot": "PLANT-MONSTERA",
    "bag": "TOTE-OCHRE",
    "flask": "FLASK-STEEL",
}
MOST_MADE_UP = len(_COLOURS) * len(_MATERIALS) * len(_SIZES) * len(_THINGS)


def made_up(count: int) -> Iterator[Article]:
    """The first of MOST_MADE_UP products that differ in colour, material, size and kind. They are the same at each call."""
    models = {article.sku: article for article in ARTICLES}
    combined = product(_SIZES, _MATERIALS, _COLOURS, _THINGS.items())
    for number, (size, material, colour, (thing, like)) in enumerate(islice(combined, count)):
        model = models[like]
        yield Article(
            sku=f"{thing} {material} {colour} {size}".replace(" ", "-").upper(),
            category=model.category,
            name=f"{colour} {material} {thing}, {size}",
            price=model.price + Decimal(number % 97) / 4,
            description=f"Made up to fill the shelves: a {thing} of {material} in {colour.lower()}, {size}.",
            picture=model.picture,
        )
