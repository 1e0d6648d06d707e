"""The page before a verb for all orders that filters find: how many, their worth, and what differs among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from django import forms
from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _

from supervision.console.verb_forms import OnceForm
from supervision.insight.filters import Filters
from supervision.jobs.selection import MOST_GROUPS
from supervision.jobs.selection import Preview as Preview  # for applications that say what a verb means
from supervision.models.labels import RUN_LABELS
from supervision.states import RunState

_OTHERS = {
    "q": _("Search"),
    "age": _("Unfinished for more than"),
    "alert": _("Has an open alert"),
    "at": _("Place"),
    "children": _("Child runs"),
}


class JobForm(OnceForm):
    """A reason, and the number of orders that the operator saw."""

    seen = forms.IntegerField(widget=forms.HiddenInput, min_value=0)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].help_text = _("Stays in each order's history together with your name, the job and its filter.")


def in_words(filters: Filters, said: Mapping[str, str]) -> list[tuple[Any, str]]:
    """Each filter's label and value."""
    return [(filters.fields[name].label if name in filters.fields else _OTHERS.get(name, name), value) for name, value in said.items()]


def found_more(seen: int, now: int) -> bool:
    """Whether so many more orders fit than the operator saw that the page has to be shown again: more than a tenth."""
    return now > seen + seen // 10


def money_in_words(held: Iterable[tuple[Any, str]]) -> str:
    """`1,025.80 EUR, 10 UGX`, from amounts and currencies."""
    return ", ".join(f"{number_format(Decimal(amount), use_l10n=True, force_grouping=True)} {currency}" for amount, currency in held)


def groups(shown: Preview) -> list[dict[str, Any]]:
    """The rows of the table of what differs."""
    return [
        {
            "orders": group.orders,
            "workflow": f"{group.workflow} {group.version}",
            "state": RUN_LABELS[RunState(group.process_state)],
            "undo": group.direction == "undo",
            "steps": ", ".join(group.steps),
            "key_reused": group.key_reused,
            "error_code": group.error_code,
            "held": money_in_words((amount, currency) for currency, amount in group.held),
        }
        for group in shown.differ[:MOST_GROUPS]
    ]
