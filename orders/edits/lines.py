"""The lines of an order as an operator wants them, and what that comes to: pure rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.edits.codes import NOTHING_LEFT, UNCHANGED
from orders.services import Conflict, InvalidOrder


@dataclass(frozen=True, kw_only=True)
class Change:
    """An order's lines before and after. pieces: the changed products, each with its quantity before and after, 0 if it is removed."""

    pieces: Mapping[str, tuple[int, int]]
    lines: Sequence[Mapping[str, Any]]
    before: Decimal
    total: Decimal
    currency: str

    @property
    def less(self) -> Decimal:
        """By how much the total becomes smaller."""
        return self.before - self.total

    def __str__(self) -> str:
        told = "; ".join(f"{before} x {sku} -> {after} x {sku}" for sku, (before, after) in self.pieces.items())
        return f"{told}; {self.before} {self.currency} -> {self.total} {self.currency}"


def changed(payload: Mapping[str, Any], wanted: Sequence[Mapping[str, Any]]) -> Change:
    """The order of this payload with these quantities: {"sku", "quantity"} each, 0 removes the line. Lines not named stay as they are.

    Raises InvalidOrder, with messages at the wrong lines; Conflict where nothing would be left, or nothing would change.
    """
    there = Counter(line["sku"] for line in payload["lines"])
    has = {line["sku"]: int(line["quantity"]) for line in payload["lines"]}
    errors: dict[int, dict[str, list[str]]] = {}
    goal: dict[str, int] = {}
    for index, line in enumerate(wanted):
        if problem := _problem(line, there, has, goal):
            errors[index] = problem
        else:
            goal[line["sku"]] = line["quantity"]
    if errors or not wanted:
        raise InvalidOrder({"lines": errors or [_("Expected at least one line.")]})
    lines = [{**line, "quantity": goal.get(line["sku"], line["quantity"])} for line in payload["lines"]]
    left = [line for line in lines if line["quantity"] > 0]
    pieces = {sku: (has[sku], quantity) for sku, quantity in goal.items() if quantity != has[sku]}
    if not left:
        text = _("Nothing of the order would be left: cancel it instead.")
        raise Conflict(NOTHING_LEFT, text, {"lines": [text]})
    if not pieces:
        text = _("The order has these lines already.")
        raise Conflict(UNCHANGED, text, {"lines": [text]})
    total = sum((Decimal(line["unit_price"]) * int(line["quantity"]) for line in left), Decimal("0.00"))
    return Change(pieces=pieces, lines=left, before=Decimal(payload["total"]), total=total, currency=payload["currency"])


def _problem(
    line: Mapping[str, Any], there: Mapping[str, int], has: Mapping[str, int], goal: Mapping[str, int]
) -> dict[str, list[str]] | None:
    sku, quantity = line.get("sku"), line.get("quantity")
    if not isinstance(sku, str) or not there.get(sku):
        return {"sku": [_("This order has no %(sku)s.") % {"sku": str(sku)[:64]}]}
    if there[sku] > 1:
        return {"sku": [_("The order has %(sku)s in several lines: they cannot be changed here.") % {"sku": sku}]}
    if sku in goal:
        return {"sku": [_("%(sku)s is named twice.") % {"sku": sku}]}
    if not isinstance(quantity, int) or isinstance(quantity, bool) or not 0 <= quantity <= has[sku]:
        text = _("Expected a number of pieces from 0 to %(most)d: an order can only become smaller.") % {"most": has[sku]}
        return {"quantity": [text]}
    return None


def flat(errors: Any) -> list[str]:
    """The messages of a refusal, without their places."""
    if isinstance(errors, Mapping):
        errors = list(errors.values())
    return [text for part in errors for text in flat(part)] if isinstance(errors, list) else [str(errors)]
