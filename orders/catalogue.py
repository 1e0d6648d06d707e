"""The demo's products, as data. `manage.py seed_catalogue` puts them into the catalogue."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from orders.parcels.splitting import USUAL_WAREHOUSE


class Article(NamedTuple):
    """One product with its initial values; `picture` is a path among the static files. The plants have a warehouse of their own."""

    sku: str
    name: str
    price: Decimal
    description: str
    picture: str
    available: int = 100_000
    warehouse: str = USUAL_WAREHOUSE


def _article(sku: str, name: str, price: str, description: str, warehouse: str = USUAL_WAREHOUSE) -> Article:
    return Article(sku, name, Decimal(price), description, f"orders/products/{sku.lower()}.svg", warehouse=warehouse)


ARTICLES = (
    _article(
        "MUG-BLUE",
        "Blue stoneware mug",
        "12.90",
        "Thrown by hand and glazed in a deep harbour blue. Holds 35 cl and keeps them warm. Goes into the dishwasher.",
    ),
    _article(
        "TEAPOT-SAND",
        "Sand teapot",
        "38.00",
        "A round pot for four cups, with a spout that does not drip. The fine steel strainer lifts out with the lid.",
    ),
    _article(
        "NOTEBOOK-A5",
        "Dotted notebook, A5",
        "9.50",
        "192 numbered pages of cream paper that ink does not go through, bound in cloth. Lies flat from the first page.",
    ),
    _article(
        "PENCILS-12",
        "Twelve colour pencils",
        "14.20",
        "Cedar, with soft cores that can be layered. They come in the clay cup they live in.",
    ),
    _article(
        "TOTE-OCHRE",
        "Ochre canvas tote",
        "18.00",
        "Heavy organic cotton with handles long enough for a winter coat. Carries fifteen kilos of market day.",
    ),
    _article(
        "LAMP-DESK",
        "Brass desk lamp",
        "79.00",
        "Two joints, one switch, warm light. Solid brass that is allowed to darken with the years. LED bulb included.",
    ),
    _article(
        "PLANT-MONSTERA",
        "Monstera in a clay pot",
        "32.50",
        "Forty centimetres of patience. Likes a bright corner and a glass of water a week; forgives holidays.",
        "greenhouse",
    ),
    _article(
        "CANDLE-FIG",
        "Fig candle",
        "21.00",
        "Rapeseed wax and a cotton wick. Burns for about forty hours and smells of leaves rather than of sugar.",
    ),
    _article(
        "CLOCK-WALL",
        "Quiet wall clock",
        "45.00",
        "A sweeping movement in an oak ring: no ticking. Thirty centimetres across, runs a year on one battery.",
    ),
    _article(
        "BOARD-OAK",
        "Oak chopping board",
        "34.90",
        "Cut from one plank and oiled three times. Two centimetres thick, with a hole to hang it up by.",
    ),
    _article(
        "FLASK-STEEL",
        "Steel flask",
        "27.40",
        "Half a litre, hot for twelve hours or cold for twenty-four. The cap is a cup, and there is nothing to rattle.",
    ),
    _article(
        "CUSHION-LINEN",
        "Striped linen cushion",
        "29.00",
        "Washed linen in the colour of roof tiles, with a feather filling. Forty-five centimetres; the cover comes off.",
    ),
)
