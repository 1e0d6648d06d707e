"""The incident about an order that was discarded as a dead letter although signals had come for it that tell of an effect outside.

Such a signal is the evidence of an agent (`Agent.evidence`), for example of money that has come. No step takes it any more, and no undo
tells of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from django.utils.translation import gettext as _

from supervision.incidents import standing
from supervision.incidents.lifecycle import Cause, open_now

KIND = standing.until_acknowledged("discarded_evidence")
Words = Callable[[str], str]
_words: list[Words] = []


def says(function: Words) -> Words:
    """Register the application's function that says what the signals to this order tell of, such as an amount; empty for nothing."""
    _words.append(function)
    return function


def note(order: str, signals: Collection[str]) -> None:
    """Tell operators of this discarded order, in the caller's transaction. signals: the names of those that had come for it."""
    names, told = ", ".join(sorted(signals)), ", ".join(filter(None, (function(order) for function in _words)))
    with standing.own_language():
        title = _("The order %(order)s was discarded, and what had come for it stays: %(signals)s.") % {
            "order": order,
            "signals": f"{names} ({told})" if told else names,
        }
    open_now(Cause(kind=KIND, key=f"{KIND}:{order}", title=title, code=names))
