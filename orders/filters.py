"""The filters of the list of orders: the engine's, and what the shop knows: mail, amounts, customers, parcels."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from typing import Any

from django.contrib.postgres.search import SearchQuery, SearchVector
from django.db.models import Exists, OuterRef, Q, QuerySet, Sum, Value
from django.db.models.functions import Lower
from django.db.models.lookups import Exact
from django.utils.translation import gettext_lazy as _

from orders.accents import plain, without_accents
from orders.models import Order, Parcel
from supervision.insight.filters import Field, Filters, amount, text

NAMES = SearchVector(without_accents("customer"), config="simple")


class OrderFilters(Filters):
    """Orders by their run and by what the customer agreed to."""

    model = Order
    run = "run_id"
    newest_first = ("-created_at", "-id")
    fields = {
        **Filters.fields,
        "email": Field(_("E-mail"), text, help=_("the whole address")),
        "min_total": Field(_("Total from"), amount, "amount"),
        "max_total": Field(_("Total to"), amount, "amount"),
        "customer": Field(_("Customer"), text, help=_("the beginnings of words of the name on the parcel")),
        "tracking_number": Field(_("Tracking number"), text, help=_("of one of the order's parcels")),
    }

    def rows(self) -> QuerySet[Order]:
        """Every order with its run, newest first."""
        return super().rows().prefetch_related("run")

    def listed(self, run: str) -> Q:
        """The runs of orders: those of parcels, returns and refunds are not in this list, and take no place of its pages."""
        return Q(Exists(Order.objects.filter(run_id=OuterRef(run))))

    def source(self, name: str, value: Any) -> Any:
        """Mails, names, amounts and tracking numbers have an index each."""
        if name in ("email", "customer", "min_total", "max_total", "tracking_number"):
            found: QuerySet[Any] = getattr(self, f"by_{name}")(Order.objects.order_by(), value)
            return found.values_list("run_id", flat=True)
        return super().source(name, value)

    def worth(self, rows: QuerySet[Order]) -> list[tuple[str, Decimal]]:
        """The orders' totals."""
        return list(rows.order_by("currency").values_list("currency").annotate(Sum("total")))

    def by_email(self, rows: QuerySet[Order], value: str) -> QuerySet[Order]:
        """The whole address, in capital or small letters."""
        return rows.filter(Exact(Lower("email"), Lower(Value(value))))

    def by_min_total(self, rows: QuerySet[Order], value: Decimal) -> QuerySet[Order]:
        """The total is this or more."""
        return rows.filter(total__gte=value)

    def by_max_total(self, rows: QuerySet[Order], value: Decimal) -> QuerySet[Order]:
        """The total is this or less."""
        return rows.filter(total__lte=value)

    def by_customer(self, rows: QuerySet[Order], value: str) -> QuerySet[Order]:
        """Every word begins a word of the customer's name."""
        return named(rows, value)

    def by_tracking_number(self, rows: QuerySet[Order], value: str) -> QuerySet[Order]:
        """An order of several parcels is found by each of them."""
        return rows.filter(public_id__in=Parcel.objects.filter(tracking_number__in=tracking_numbers(value)).values("order_key"))


def named(rows: QuerySet[Any], name: str) -> QuerySet[Any]:
    """The orders with a customer of this name."""
    words = [word for word in name.split() if re.search(r"\w", word)]
    if not words:
        return rows.none()
    query = SearchQuery(" & ".join(map(_word, words)), search_type="raw", config="simple")
    found: QuerySet[Any] = rows.alias(name_words=NAMES).filter(name_words=query)
    return found


def _word(word: str) -> str:
    """The condition for one word. Only the database knows where it has divided a name: at which apostrophes, signs and accents.

    So either all parts of the word begin words of the name, or the word as the database divides it does. The apostrophe of a
    phone's keyboard is not that of a desk's, and some keyboards write an accent as a sign of its own: such a sign is left out, but
    a letter that has it and is not in `orders.accents` is kept. The database alone knows which small letters it has for capitals."""
    typed, composed, decomposed = (plain(each) for each in (word, *(unicodedata.normalize(form, word) for form in ("NFC", "NFD"))))
    ways = [" & ".join(f"'{part}':*" for part in re.findall(r"\w+", typed))]
    others = [*([] if any(map(unicodedata.combining, decomposed)) else [decomposed]), *([] if word.isascii() else [word])]
    for said in (typed, composed, typed.replace("'", "’"), *others):
        quoted = said.replace("\\", " ").replace("'", "''")
        ways.append(f"'{quoted}':*")
    return f"({' | '.join(f'({way})' for way in dict.fromkeys(ways))})"  # the index is read once for each way


def tracking_numbers(said: str) -> list[str]:
    """As it was typed, and as carriers write it: in capitals and without the spaces of a printed label."""
    together = "".join(said.split())
    return list({said, together, together.upper()})
