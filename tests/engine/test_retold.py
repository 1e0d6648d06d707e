"""Texts that were written down in English are told in the reader's language, their values included."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, override

from orders import written as shops
from supervision.runtime import written
from supervision.runtime.retold import retold

ROOT = Path(__file__).resolve().parent.parent.parent
# The errors of a gateway, and what one of them is made with.
OF_SERVICES = re.compile(
    r"NoTime|NotSent|NoAnswer|KeyConflict|Unavailable|KeyRefused|Broken|Deleted|AddressNotServiceable|Rejected|super\(\).__init__"
)


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


def said_of_services() -> list[str]:
    """What the gateways raise about a service, with a value in each place."""
    found = []
    for name in ("http", "payment", "carrier"):
        for node in ast.walk(ast.parse((ROOT / f"orders/gateways/{name}.py").read_text())):
            if not isinstance(node, ast.Call) or not node.args or not OF_SERVICES.fullmatch(ast.unparse(node.func)):
                continue
            if isinstance(text := node.args[0], ast.JoinedStr | ast.Constant):
                parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "503" for part in parts))
    return found


@pytest.mark.parametrize("language", ["it", "pt-br"])
def test_what_the_gateways_say_of_a_service_is_told_in_the_readers_language(language: str) -> None:
    said = said_of_services()

    assert len(said) > 20
    with override(language):
        assert [text for text in said if retold(text) == text] == []


def test_an_outage_and_the_timeline_have_no_english_word() -> None:
    with override("it"):
        assert retold("The payment service cannot be reached (ConnectError).") == (
            "Il servizio di pagamento non è raggiungibile (ConnectError)."
        )
        assert retold("scheduled in agents-1@host") == "pianificato in agents-1@host"


@pytest.mark.parametrize(("texts", "folder"), [(written.WRITTEN, "supervision"), (shops.WRITTEN, "orders")])
def test_what_is_marked_as_written_is_in_the_code_that_writes_it(texts: tuple[str, ...], folder: str) -> None:
    code = "".join(path.read_text() for path in (ROOT / folder).rglob("*.py") if path.name != "written.py")

    for text in texts:
        for part in re.split(r"%\(\w+\)[ds]", text):
            assert part.strip() in code, text
