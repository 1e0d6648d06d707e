"""What a warehouse says about returned goods: reads the payload of the signal `goods-received`. Pure rules, no database."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from django.utils.translation import gettext as _


class Unreadable(Exception):
    """The report does not fit the return. field: the part that is wrong, such as `lines[0].accepted`."""

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, problem
        super().__init__(f"{field}: {problem}")


class Came(NamedTuple):
    """What came of one line of the return. What is neither accepted nor refused did not come."""

    accepted: int
    refused: int


Asked = Mapping[tuple[str, Decimal], int]  # the pieces of a return by product and price


def read(report: Mapping[str, Any], asked: Asked) -> dict[tuple[str, Decimal], Came]:
    """What came, for each product and price of the return; a product that the report leaves out did not come. Raises Unreadable.

    report: {"lines": [{"sku", "unit_price", "accepted", "refused"}]}, `refused` may be left out, and `unit_price`, too: then the
    accepted pieces are the cheapest ones of the return, and the refused ones the cheapest of the others.
    """
    lines = report.get("lines")
    if not isinstance(lines, list):
        raise Unreadable("lines", _("expected a list"))
    if unknown := [str(name)[:100] for name in report if name != "lines"]:
        raise Unreadable(unknown[0], _("this field is not known"))
    found: dict[tuple[str, Decimal], Came] = {}
    for index, line in enumerate(lines):
        place = f"lines[{index}]"
        if not isinstance(line, Mapping):
            raise Unreadable(place, _("expected an object"))
        if unknown := [str(name)[:100] for name in line if name not in ("sku", "unit_price", "accepted", "refused")]:
            raise Unreadable(f"{place}.{unknown[0]}", _("this field is not known"))
        sku = line.get("sku")
        of = {at: pieces for at, pieces in sorted(asked.items()) if at[0] == sku}
        if not isinstance(sku, str) or not of:
            raise Unreadable(f"{place}.sku", _("expected a product of this return"))
        if line.get("unit_price") is not None:
            price = _price(line["unit_price"])
            of = {at: pieces for at, pieces in of.items() if at[1] == price}
        if not of:
            raise Unreadable(f"{place}.unit_price", _("this return has no such price of this product"))
        if found.keys() & of.keys():
            raise Unreadable(f"{place}.sku", _("this product comes twice"))
        most = sum(of.values())
        accepted = _pieces(line.get("accepted"), f"{place}.accepted", most)
        refused = _pieces(line.get("refused", 0), f"{place}.refused", most)
        if accepted + refused > most:
            raise Unreadable(f"{place}.refused", _("at most %(most)d pieces can have come") % {"most": most})
        for at, pieces in of.items():
            taken = Came(min(accepted, pieces), min(refused, pieces - min(accepted, pieces)))
            found[at], accepted, refused = taken, accepted - taken.accepted, refused - taken.refused
    return {at: found.get(at, Came(0, 0)) for at in asked}


def _price(said: Any) -> Decimal | None:
    try:
        return Decimal(said) if isinstance(said, str) else None
    except ArithmeticError:
        return None


def _pieces(said: Any, place: str, most: int) -> int:
    if type(said) is not int or not 0 <= said <= most:
        raise Unreadable(place, _("expected a whole number from 0 to %(most)d") % {"most": most})
    return said
