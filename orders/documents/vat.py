"""The rule of VAT: prices include it, each product has a rate, and each line is rounded by itself. No database.

The VAT of a line is its amount times rate / (100 + rate), rounded half up to the currency's smallest unit (`unit_of`). What a document
has of a rate is the sum of its lines. Credit notes of one product at one price are rounded together: after the last piece came back,
they have exactly the invoice's VAT. `orders.documents.sharing` says how an amount without goods is shared over the rates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from orders.currencies import decimals

CENT = Decimal("0.01")
Line = dict[str, Any]  # sku, name, quantity, unit_price, amount, rate, vat: JSON values, amounts as text


def unit_of(currency: str) -> Decimal:
    """The smallest amount of this currency that documents have: 1 yen, 0.01 euro. Where a currency has three decimals, it is 0.01, too.

    The shop's prices have two decimals at most, and the payment service charges no less of such a currency.
    """
    return Decimal(1).scaleb(-min(2, decimals(currency)))


def rounded(tax: Decimal, unit: Decimal, *of: Decimal) -> Decimal:
    """VAT in whole units, half up; in hundredths where one of these amounts that it is of is not whole either."""
    return tax.quantize(CENT if any(one % unit for one in of) else unit, ROUND_HALF_UP).quantize(CENT)


def included(amount: Decimal, rate: Decimal, unit: Decimal) -> Decimal:
    """The VAT in an amount that includes it. rate: in percent. unit: of the currency."""
    return rounded(amount * rate / (100 + rate), unit, amount)


def invoice_line(sku: str, name: str, quantity: int, unit_price: Decimal, rate: Decimal, unit: Decimal) -> Line:
    """One line of an invoice. unit: of the currency."""
    amount = unit_price * quantity
    return line(sku, name, quantity, unit_price, amount, rate, included(amount, rate, unit))


def credit_line(
    sku: str, name: str, quantity: int, unit_price: Decimal, invoiced: Sequence[Line], credited: Sequence[Line], unit: Decimal
) -> Line:
    """One line of a credit note. invoiced, credited: the lines of this product at this price on the invoice and on the credit notes.

    unit: of the currency.
    """
    rate = Decimal(invoiced[0]["rate"]) if invoiced else Decimal(0)
    amount, before = unit_price * quantity, sum((Decimal(one["amount"]) for one in credited), Decimal(0))
    whole, most = total(invoiced), sum((Decimal(one["vat"]) for one in invoiced), Decimal(0))
    until_now = most if before + amount == whole else included(before + amount, rate, unit)
    vat = until_now - sum((Decimal(one["vat"]) for one in credited), Decimal(0))
    return line(sku, name, quantity, unit_price, amount, rate, vat)


def line(sku: str, name: str, quantity: int, unit_price: Decimal, amount: Decimal, rate: Decimal, vat: Decimal) -> Line:
    """A line as documents keep it."""
    return {
        "sku": sku,
        "name": name,
        "quantity": quantity,
        "unit_price": str(unit_price.quantize(CENT)),
        "amount": str(amount.quantize(CENT)),
        "rate": f"{rate.normalize():f}",
        "vat": str(vat),
    }


def total(lines: Sequence[Mapping[str, Any]]) -> Decimal:
    """The sum with VAT."""
    return sum((Decimal(line["amount"]) for line in lines), Decimal("0.00"))


def by_rate(lines: Sequence[Mapping[str, Any]]) -> dict[str, tuple[Decimal, Decimal]]:
    """The amount with VAT, and the VAT in it, by rate; the highest rate first."""
    sums: dict[str, tuple[Decimal, Decimal]] = {}
    for line in sorted(lines, key=lambda line: -Decimal(line["rate"])):
        amount, vat = sums.get(line["rate"], (Decimal("0.00"), Decimal("0.00")))
        sums[line["rate"]] = amount + Decimal(line["amount"]), vat + Decimal(line["vat"])
    return sums
