"""What attempts said to services: masked, cut, kept for some days, and written without an order waiting for it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from supervision.agent import MOST_EXCHANGES
from supervision.errors import PermanentFailure
from supervision.ledger import exchanges
from supervision.ledger.exchanges import LONGEST, shown
from supervision.models import Exchange, Run
from supervision.telemetry.masking import MASK
from supervision.testing import run_until_idle
from tests.conftest import until
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def said(key: str, most: int = 1) -> list[Exchange]:
    run = Run.objects.get(key=key)
    until(lambda: len(exchanges.of(run.pk)) >= most)
    return exchanges.of(run.pk)


def talk(request, asked: str = '{"amount": 5}', answered: str = '{"id": "x"}', status: int | None = 200) -> dict:
    request.exchanged("alpha", "POST /v1/things", asked, answered, status, 0.125)
    return {}


def test_each_attempt_keeps_its_request_and_its_answer():
    toy.ALPHA.on_perform = talk
    key = kit.waiting(1, "toy-plain")[0]
    run_until_idle()

    (one,) = said(key)
    assert (one.service, one.call, one.status, one.attempt, one.direction) == ("alpha", "POST /v1/things", 200, 1, "do")
    assert (json.loads(one.asked), json.loads(one.answered), one.seconds) == ({"amount": 5}, {"id": "x"}, 0.125)


def test_an_attempt_that_fails_keeps_them_too():
    def refuse(request):
        talk(request, answered="the bank says no", status=402)
        raise PermanentFailure("no", "refused")

    toy.ALPHA.on_perform = refuse
    key = kit.waiting(1, "toy-plain")[0]
    run_until_idle()

    (one,) = said(key)
    assert (one.status, one.answered) == (402, "the bank says no")


def test_workflows_whose_agents_report_nothing_write_nothing():
    kit.waiting(1, "toy-plain")
    run_until_idle()

    assert not Exchange.objects.exists()


def test_nothing_is_kept_where_the_setting_is_zero(tuned):
    tuned(EXCHANGE_DAYS=0)
    toy.ALPHA.on_perform = talk
    kit.waiting(1, "toy-plain")
    run_until_idle()
    tuned(EXCHANGE_DAYS=14)
    key = kit.waiting(1, "toy-plain")[0]
    run_until_idle()

    said(key)
    assert Exchange.objects.count() == 1


def test_an_attempt_keeps_so_many_calls_and_no_more():
    def chat(request):
        for _call in range(MOST_EXCHANGES + 5):
            talk(request)
        return {}

    toy.ALPHA.on_perform = chat
    key = kit.waiting(1, "toy-plain")[0]
    run_until_idle()

    assert len(said(key, MOST_EXCHANGES)) == MOST_EXCHANGES


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ('{"client_secret": "pi_1_secret_x", "amount": 5}', '"amount": 5', "secret_x"),
        ('{"a": [{"card": {"number": "4242"}}]}', MASK, "4242"),
        ("amount=5&payment_method=pm_card_visa", "amount=5", "pm_card_visa"),
        ("metadata[order]=abc&card[number]=42", "metadata[order]=abc", "number]=42"),
        ('{"note": "4242 4242 4242 4242"}', MASK, "4242"),
        ('{"note": "write to ada@example.com"}', MASK, "ada@"),
        ('{"shipping_address": {"line1": "Via Roma 1"}}', MASK, "Via Roma"),
        ('{"diagnosis": "flu", "id": 1}', '"id": 1', "flu"),
        ("a secret in free text", "[21 characters]", "secret"),
    ],
)
def test_secrets_cards_and_personal_data_are_masked(text: str, kept: str, gone: str):
    found = shown(text, {"diagnosis"})

    assert kept in found
    assert gone not in found


def test_long_texts_are_cut_and_very_long_ones_are_not_kept():
    assert len(shown(json.dumps({"x": "y" * 9000}))) == LONGEST + 1
    assert shown(json.dumps("y" * 300_000)) == "[300002 characters]"


def test_they_are_removed_after_their_days_and_at_a_persons_request():
    toy.ALPHA.on_perform = talk
    old, new = kit.waiting(2, "toy-plain")
    run_until_idle()
    (first,), (second,) = said(old), said(new)
    Exchange.objects.filter(pk=first.pk).update(at=first.at - timedelta(days=15))

    exchanges.delete_old()

    assert list(Exchange.objects.values_list("pk", flat=True)) == [second.pk]
    assert exchanges.forget(second.run_id) == 1
    assert not Exchange.objects.exists()
