"""Texts that were written down in English are told in the reader's language, their values included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, override

from orders import written as shops
from supervision.runtime import written
from supervision.runtime.retold import retold

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("1 dead letter waits for a decision.", "1 messaggio non recapitabile attende una decisione."),
        ("3 dead letters wait for a decision.", "3 messaggi non recapitabili attendono una decisione."),
        ("charge-payment fails: Payment refused: card_declined", "charge-payment non riesce: Pagamento rifiutato: card_declined"),
        (
            "The order has ended, or is being undone, and takes no signal any more.",
            "L’ordine è finito, o è in annullamento, e non accetta più segnali.",
        ),
        ("Assigned to The order.", "Assegnato a L’ordine."),
        ("5 % of 10 %(n)s", "5 % of 10 %(n)s"),
        ("card_declined: Your card was declined.", "card_declined: La tua carta è stata rifiutata."),
        ("the bank's own words", "the bank's own words"),
        ("", ""),
    ],
)
def test_a_text_is_told_in_italian_as_far_as_the_catalogues_know_it(written: str, told: str) -> None:
    with override("it"):
        assert retold(written) == told


def test_english_readers_and_code_without_a_language_get_the_text_as_it_is() -> None:
    for language in ("en", None):
        with override(language):
            assert retold("1 dead letter waits for a decision.") == "1 dead letter waits for a decision."


def test_what_is_retold_is_what_the_code_would_have_said() -> None:
    with override("en"):
        written = [
            _("%(step)s waits for %(count)s child runs.") % {"step": "ship", "count": "4"},
            ngettext("It holds %(n)d order.", "It holds %(n)d orders.", 7) % {"n": 7},
        ]
    with override("pt-br"):
        said = [
            _("%(step)s waits for %(count)s child runs.") % {"step": "ship", "count": "4"},
            ngettext("It holds %(n)d order.", "It holds %(n)d orders.", 7) % {"n": 7},
        ]
        assert [retold(text) for text in written] == said


def test_a_very_long_text_is_not_searched() -> None:
    with override("it"):
        assert retold("x" * 1_000_000 + " fails: y") == "x" * 1_000_000 + " fails: y"


@pytest.mark.parametrize(("texts", "folder"), [(written.WRITTEN, "supervision"), (shops.WRITTEN, "orders")])
def test_what_is_marked_as_written_is_in_the_code_that_writes_it(texts: tuple[str, ...], folder: str) -> None:
    code = "".join(path.read_text() for path in (ROOT / folder).rglob("*.py") if path.name != "written.py")

    for text in texts:
        for part in re.split(r"%\(\w+\)[ds]", text):
            assert part.strip() in code, text
