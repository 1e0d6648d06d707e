"""What a warehouse says about returned goods: reads the payload of the signal `goods-received`. Pure rules, no database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.utils.translation import gettext as _


class Unreadable(Exception):
    """The report does not fit the return. field: the part that is wrong, such as `lines[0].accepted`."""

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, problem
        super().__init__(f"{field}: {problem}")


class Came(NamedTuple):
    """What came of one product. What is neither accepted nor refused did not come."""

    accepted: int
    refused: int


def read(report: Mapping[str, Any], asked: Mapping[str, int]) -> dict[str, Came]:
    """What came, for each product of the return; a product that the report leaves out did not come. Raises Unreadable.

    report: {"lines": [{"sku", "accepted", "refused"}]}, `refused` may be left out. asked: the pieces of the return, by SKU.
    """
    lines = report.get("lines")
    if not isinstance(lines, list):
        raise Unreadable("lines", _("expected a list"))
    if unknown := [str(name)[:100] for name in report if name != "lines"]:
        raise Unreadable(unknown[0], _("this field is not known"))
    found: dict[str, Came] = {}
    for index, line in enumerate(lines):
        place = f"lines[{index}]"
        if not isinstance(line, Mapping):
            raise Unreadable(place, _("expected an object"))
        if unknown := [str(name)[:100] for name in line if name not in ("sku", "accepted", "refused")]:
            raise Unreadable(f"{place}.{unknown[0]}", _("this field is not known"))
        sku = line.get("sku")
        if not isinstance(sku, str) or sku not in asked:
            raise Unreadable(f"{place}.sku", _("expected a product of this return"))
        if sku in found:
            raise Unreadable(f"{place}.sku", _("this product comes twice"))
        accepted = _pieces(line.get("accepted"), f"{place}.accepted", asked[sku])
        refused = _pieces(line.get("refused", 0), f"{place}.refused", asked[sku])
        if accepted + refused > asked[sku]:
            raise Unreadable(f"{place}.refused", _("at most %(most)d pieces can have come") % {"most": asked[sku]})
        found[sku] = Came(accepted, refused)
    return {sku: found.get(sku, Came(0, 0)) for sku in asked}


def _pieces(said: Any, place: str, most: int) -> int:
    if type(said) is not int or not 0 <= said <= most:
        raise Unreadable(place, _("expected a whole number from 0 to %(most)d") % {"most": most})
    return said
