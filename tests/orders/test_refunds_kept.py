"""A return or refund by card that has paid and is cancelled then: it stays paid, unless an operator completes its undo."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orders.documents.tables import Document
from orders.services import Conflict
from supervision.models import ArchivedRun
from supervision.operations import archive, completing
from supervision.testkit.run import Run
from tests.orders.test_invoices import issue
from tests.orders.test_missing_credit_notes import command, forgotten
from tests.orders.test_payouts_kept import books
from tests.orders.test_refund_parts import refunds_made
from tests.orders.test_refunds import given, paying
from tests.orders.test_refunds_by_hand import by_hand, left, stopped, undone
from tests.orders.test_return_corrections import correct, report
from tests.orders.test_returns import ada, asked, delivered, goods, held, olga, shop, told

__all__ = ["ada", "delivered", "olga", "shop"]


def notes() -> list[str]:
    return [str(note.total) for note in Document.objects.filter(kind="credit_note")]


def keeps_the_money(shop, services, made: str) -> None:
    """An operator skips the undo of what was paid, and all of it ends."""
    undone(shop, made)
    Run(made).skip("the customer keeps the money")
    services.clear()
    shop.run()
    issue()


@pytest.mark.parametrize("how", ["by the service", "by hand"])
def test_a_cancelled_refund_that_stays_paid_is_in_the_books(shop, delivered, services, how):
    issue()
    services.faults("mail", "down")
    if how == "by hand":
        made = stopped(shop, delivered, "10.00")
        by_hand(made, "10.00")
    else:
        made = given(delivered).public_id
    shop.run()
    keeps_the_money(shop, services, made)
    Run(made).assert_state("Cancelled")
    assert (books(), paying(delivered)) == (["10.00"], ("partly_refunded", "10.00"))
    assert notes() == ["10.00"]
    left(delivered, "69.80")
    shop.assert_healthy()


@pytest.mark.parametrize("verb", ["skip", "complete", "abandon"])
def test_a_cancelled_return_that_has_paid_keeps_its_pieces_unless_the_money_came_back(shop, delivered, olga, services, verb):
    issue()
    services.faults("mail", "down")
    back = asked(shop, delivered, mugs=1)
    goods(shop, back, ("MUG-BLUE", 1))
    assert refunds_made(services, delivered) == [1290]
    if verb == "abandon":
        Run(back).abandon("the customer keeps the money")
    else:
        undone(shop, back)
    if verb == "skip":
        Run(back).skip("the customer keeps the money")
    if verb == "complete":
        completing.complete(back, by="olga", reason="the customer paid it back", step="refund-part", result={})
    services.clear()
    shop.run()
    issue()
    Run(back).assert_state("Cancelled")
    mails = [entry for entry in services.ledger("mail", delivered) if entry["effect"] and "has ended" in str(entry)]
    if verb == "complete":
        assert (len(mails), notes()) == (1, [])
        asked(shop, delivered, mugs=2)
    else:
        assert (mails, notes()) == ([], ["12.90"])
        assert told(olga, back)["refunded"] == "12.90"
        with pytest.raises(Conflict):
            asked(shop, delivered, mugs=2)
    shop.assert_healthy()


@pytest.mark.parametrize("verb", ["skip", "complete"])
def test_the_credit_note_of_one_that_was_cancelled_before_is_issued_by_the_command(shop, delivered, services, verb):
    issue()
    services.faults("mail", "down")
    made = given(delivered).public_id
    shop.run()
    undone(shop, made)
    completing.complete(made, by="olga", reason="x", step="refund-part", result={}) if verb == "complete" else Run(made).skip("stays")
    services.clear()
    shop.run()
    Run(made).assert_state("Cancelled")
    forgotten()
    assert command()[-1] == ("1 credit notes are queued: the outbox issues them" if verb == "skip" else "no credit note is missing")
    issue()
    assert notes() == (["10.00"] if verb == "skip" else [])
    shop.assert_healthy()


@pytest.mark.parametrize("keep", [True, False])
def test_a_cancelled_refund_of_missed_pieces_that_stays_paid_counts_for_its_return(shop, delivered, olga, services, keep):
    issue()
    back = asked(shop, delivered, mugs=2)
    goods(shop, back, ("MUG-BLUE", 1))
    services.faults("mail", "down")
    made = correct(back, report(mugs=2)).refund
    shop.run()
    keeps_the_money(shop, services, made)
    assert (told(olga, back)["refunded"], notes()) == ("25.80", ["12.90", "12.90"])
    shop.assert_healthy()
    for _moved in [*archive.batches(timedelta(0), keep_orders=keep), *archive.batches(timedelta(0), keep_orders=keep)]:
        pass
    assert ArchivedRun.objects.filter(key=delivered).exists()
    assert told(olga, back)["refunded"] == "25.80", "the archive says the same"


@pytest.mark.parametrize("verb", ["skip", "complete"])
@pytest.mark.parametrize("what", ["refund", "return"])
def test_a_step_that_paid_and_could_not_tell_counts_when_it_is_cancelled(shop, delivered, olga, services, what, verb):
    issue()
    for _ in range(5):
        shop.kill("refund-part", at="agent.after_effect")
    if what == "refund":
        made = given(delivered, "12.90").public_id
    else:
        made = asked(shop, delivered, mugs=1)
        goods(shop, made, ("MUG-BLUE", 1))
    shop.advance("2h")
    Run(made).assert_state("Error")
    assert refunds_made(services, delivered) == [1290]
    undone(shop, made)
    completing.complete(made, by="olga", reason="x", step="refund-part", result={}) if verb == "complete" else Run(made).skip("stays")
    shop.run()
    issue()
    Run(made).assert_state("Cancelled")
    assert notes() == (["12.90"] if verb == "skip" else [])
    if what == "return":
        assert told(olga, made)["refunded"] == ("12.90" if verb == "skip" else "0.00")
        assert held(delivered)["MUG-BLUE"] == (1 if verb == "skip" else 0)
    shop.assert_healthy()
    for _moved in archive.batches(timedelta(0), keep_orders=True):
        pass
    assert ArchivedRun.objects.filter(key=made).exists()
    if what == "return":
        assert told(olga, made)["refunded"] == ("12.90" if verb == "skip" else "0.00"), "the archive says the same"
    if verb == "skip":
        forgotten()
        assert command()[-1] == "1 credit notes are queued: the outbox issues them"
