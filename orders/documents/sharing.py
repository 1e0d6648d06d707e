"""How a credit note takes an amount from the rates of its invoice. No database.

The rest of a rate is what the invoice has of it, less what earlier credit notes took. No credit note takes more than the rest.

An amount without goods is shared over the rates in proportion to their rests, in the currency's smallest unit. Each rate gets the
whole part of its share; the units that are left go to the largest fractions, and of equal ones to the higher rate. So the shares
are exactly the amount. A share's VAT is the same part of the rest's VAT, rounded half up: the last share of a rate takes its last cent.

Goods are credited at their own rate. What is missing there, because money went back without goods before, is taken from the
other rates in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal

from orders.documents import vat
from orders.documents.vat import CENT, Line

NOTHING = Decimal("0.00")
Rests = Mapping[str, tuple[Decimal, Decimal]]  # by rate: the amount with VAT, and the VAT in it


def rests(invoiced: Sequence[Line], credited: Sequence[Line]) -> dict[str, tuple[Decimal, Decimal]]:
    """What credit notes may still take, by the invoice's rates; the highest rate first."""
    taken = vat.by_rate(credited)
    found = {}
    for rate, (amount, tax) in vat.by_rate(invoiced).items():
        before = taken.get(rate, (NOTHING, NOTHING))
        found[rate] = max(NOTHING, amount - before[0]), max(NOTHING, tax - before[1])
    return found


def left(rest: Rests) -> Decimal:
    """What all rates have left together."""
    return sum((amount for amount, _tax in rest.values()), NOTHING)


def shares(amount: Decimal, of: Mapping[str, Decimal], unit: Decimal) -> dict[str, Decimal]:
    """This amount in proportion to these ones, in whole units; together exactly the amount. It is at most their sum."""
    whole = sum(of.values(), NOTHING)
    if not whole or amount <= 0:
        return {}
    if any(one % unit for one in (amount, *of.values())):
        unit = CENT
    exact = {rate: amount * one / whole / unit for rate, one in of.items()}
    units = {rate: one.to_integral_value(ROUND_FLOOR) for rate, one in exact.items()}
    missing = int(amount / unit - sum(units.values()))
    for rate in sorted(of, key=lambda rate: (units[rate] - exact[rate], -Decimal(rate)))[:missing]:
        units[rate] += 1
    return {rate: (one * unit).quantize(CENT) for rate, one in units.items() if one}


def vat_of(share: Decimal, rest: tuple[Decimal, Decimal], unit: Decimal) -> Decimal:
    """The VAT of a share of this rest, in whole units."""
    amount, tax = rest
    return NOTHING if not amount else vat.rounded(tax * share / amount, unit, share, tax)


def without_goods(amount: Decimal, rest: Rests, unit: Decimal, name: str) -> list[Line]:
    """The lines that credit this amount, or all that is left if that is less; one for each rate."""
    parts = shares(min(amount, left(rest)), {rate: free for rate, (free, _tax) in rest.items()}, unit)
    return [vat.line("", name, 1, part, part, Decimal(rate), vat_of(part, rest[rate], unit)) for rate, part in parts.items()]


def of_goods(lines: Sequence[Line], rest: Rests, unit: Decimal, *, before: str, instead: str) -> list[Line]:
    """These lines of goods, and lines that keep each rate within its rest; together what the goods are worth, or all that is left.

    before, instead: the names of the lines that take away what was credited before, and of those at the rates that give it instead.
    """
    sums = vat.by_rate(lines)
    over = {rate: amount - rest.get(rate, (NOTHING, NOTHING))[0] for rate, (amount, _tax) in sums.items()}
    over = {rate: amount for rate, amount in over.items() if amount > 0}
    free = {rate: amount - sums.get(rate, (NOTHING, NOTHING))[0] for rate, (amount, _tax) in rest.items()}
    free = {rate: amount for rate, amount in free.items() if amount > 0}
    moved = shares(min(sum(over.values(), NOTHING), sum(free.values(), NOTHING)), free, unit)
    made = [dict(line) for line in lines]
    for rate in sorted({*sums, *moved}, key=Decimal, reverse=True):
        amount, tax = sums.get(rate, (NOTHING, NOTHING))
        most, most_tax = rest.get(rate, (NOTHING, NOTHING))
        change = moved.get(rate, NOTHING) - over.get(rate, NOTHING)
        wanted = min(tax, most_tax)
        if change > 0:
            wanted += vat_of(change, (most - amount, most_tax - wanted), unit)
        if amount + change == most:
            wanted = most_tax
        if change:
            made.append(vat.line("", instead if change > 0 else before, 1, change, change, Decimal(rate), wanted - tax))
        elif wanted != tax:  # a cent that the shares of amounts without goods have left or taken
            last = next(one for one in reversed(made) if one["rate"] == rate)
            last["vat"] = str(Decimal(last["vat"]) + wanted - tax)
    return made
