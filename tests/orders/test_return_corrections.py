"""A report on a return that was wrong is corrected: before it was paid and after, once, and stock, money and books stay true."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command

from orders import accounting
from orders.documents.tables import Document
from orders.models import Order, OrderLine, Refund, ReturnCorrection, ReturnLine
from orders.payments import codes as payment_codes
from orders.queries import order_view
from orders.returns import correcting
from orders.returns.asking import ask
from orders.returns.goods import Unreadable
from orders.services import KeyReused
from supervision.approvals import deciding
from supervision.errors import AwaitsApproval, ChangedMeanwhile, Refused, UnknownRun
from supervision.models import Approval, JournalEntry
from supervision.operations import operator_verbs, pauses
from supervision.signals.sending import send_signal
from supervision.testkit.run import Run
from tests.engine.kit import at_once
from tests.orders.test_invoices import issue
from tests.orders.test_refund_parts import refunds_made
from tests.orders.test_returns import LINES, ada, asked, delivered, goods, held, olga, shop, stock, told
from tests.shopping import a_product, an_account, place
from tests.support.console import hidden, page, person

__all__ = ["ada", "delivered", "olga", "shop"]


def report(**pieces: int | tuple[int, int]) -> dict:
    names = {"mugs": "MUG-BLUE", "totes": "TOTE-OCHRE"}
    both = {name: count if isinstance(count, tuple) else (count, 0) for name, count in pieces.items()}
    return {"lines": [{"sku": names[name], "accepted": count[0], "refused": count[1]} for name, count in both.items()]}


def correct(back: str, said: dict, *, once: str = "one", version: int | None = None, by="olga"):
    return correcting.correct(back, said, reason="counted wrong", by=by, idempotency_key=once, version=version)


def lines_of(back: str) -> dict[str, tuple]:
    rows = ReturnLine.objects.filter(of__public_id=back).values_list("sku", "accepted", "refused", "holds", "restocked")
    return {sku: tuple(rest) for sku, *rest in rows}


@pytest.fixture
def returned(shop, delivered) -> str:
    """A return of two mugs and one tote, of which one mug and the tote were accepted, that is done: 30.90 went back."""
    back = asked(shop, delivered, mugs=2, totes=1)
    goods(shop, back, ("MUG-BLUE", 1, 1), ("TOTE-OCHRE", 1))
    issue()
    return back


def test_pieces_that_were_missed_are_paid_restocked_and_credited(shop, delivered, returned, olga, services):
    before = stock("MUG-BLUE")
    made = correct(returned, report(mugs=2, totes=1), by=an_account("otto", "operator"))
    shop.run()
    issue()

    Run(made.refund).assert_state("Processed")
    assert (str(made.further), str(made.too_much), made.paid) == ("12.90", "0.00", True)
    assert refunds_made(services, delivered) == [3090, 1290]
    assert stock("MUG-BLUE") == before + 1
    assert lines_of(returned) == {"MUG-BLUE": (2, 0, 2, 2), "TOTE-OCHRE": (1, 0, 1, 1)}
    assert held(delivered) == {"MUG-BLUE": 2, "TOTE-OCHRE": 1}
    note = Document.objects.get(cause=made.refund)
    assert [(one["sku"], one["quantity"], one["amount"]) for one in note.body["lines"]] == [("MUG-BLUE", 1, "12.90")]
    now = told(olga, returned)
    assert (now["worth"], now["refunded"], now["too_much"], now["corrections"]) == ("43.80", "43.80", "0.00", 1)
    assert [one.change_message for one in LogEntry.objects.filter(change_message__contains="correct: counted wrong")]
    shop.assert_healthy()


def test_an_amount_with_three_decimals_counts(shop, ada, olga):
    a_product("OUD", price="12.90", currency="KWD")
    key = place(ada, lines=[{"sku": "OUD", "quantity": 2}])
    shop.run()
    back = ask(order_view(key), [{"sku": "OUD", "quantity": 2}], "too small", by="customer").public_id
    shop.run()
    goods(shop, back, ("OUD", 1))
    correct(back, {"lines": [{"sku": "OUD", "accepted": 2}]})
    shop.run()
    issue()

    assert told(olga, back)["refunded"] == "25.80"
    shop.assert_healthy()


def test_what_was_paid_too_much_is_recorded_and_is_not_paid_again(shop, delivered, returned, olga, services):
    before = stock("MUG-BLUE")
    made = correct(returned, report(mugs=(0, 1), totes=1))
    issue()

    assert (made.refund, str(made.further), str(made.too_much)) == ("", "0.00", "12.90")
    assert stock("MUG-BLUE") == before - 1
    assert lines_of(returned)["MUG-BLUE"] == (0, 1, 1, 0)
    assert held(delivered)["MUG-BLUE"] == 1, "it was paid: it cannot be asked for again"
    assert [str(one.total) for one in Document.objects.filter(kind="credit_note")] == ["30.90"], "the money did go out"
    event = json.loads(JournalEntry.objects.get(event_type=accounting.CORRECTED).body)
    assert (event["pieces_before"], event["pieces"], event["worth"], event["paid_too_much"], event["further"]) == (
        2,
        1,
        "18.00",
        "12.90",
        "0.00",
    )
    now = told(olga, returned)
    assert (now["worth"], now["refunded"], now["too_much"]) == ("18.00", "30.90", "12.90")

    again = correct(returned, report(mugs=1, totes=1), once="two")
    shop.run()
    assert (again.refund, str(again.too_much)) == ("", "-12.90")
    assert refunds_made(services, delivered) == [3090], "the piece that came after all was paid before"
    assert told(olga, returned)["too_much"] == "0.00"
    assert stock("MUG-BLUE") == before
    shop.assert_healthy()


def test_a_return_of_which_nothing_was_accepted_is_paid_after_its_correction(shop, delivered, services):
    back = asked(shop, delivered, mugs=2)
    goods(shop, back, ("MUG-BLUE", 0, 2))
    before = stock("MUG-BLUE")
    made = correct(back, report(mugs=(1, 1)))
    shop.run()
    issue()

    assert refunds_made(services, delivered) == [1290]
    assert (stock("MUG-BLUE"), held(delivered)["MUG-BLUE"]) == (before + 1, 1)
    assert Document.objects.get(kind="credit_note").cause == made.refund
    shop.assert_healthy()


def test_a_credit_note_that_waits_is_of_what_was_paid_before_the_correction(shop, delivered, services):
    back = asked(shop, delivered, mugs=2)
    goods(shop, back, ("MUG-BLUE", 1))
    made = correct(back, report(mugs=2))
    shop.run()
    issue()

    assert {one.cause: str(one.total) for one in Document.objects.filter(kind="credit_note")} == {back: "12.90", made.refund: "12.90"}
    shop.assert_healthy()


def test_a_process_that_dies_pays_the_missed_pieces_once(shop, delivered, returned, services):
    shop.kill("refund-part", at="agent.after_effect")
    correct(returned, report(mugs=2, totes=1))
    shop.advance("10m")

    assert refunds_made(services, delivered) == [3090, 1290]
    shop.assert_healthy()


def test_before_it_is_paid_a_correction_changes_what_is_restocked_and_paid(shop, delivered, services):
    back, before = asked(shop, delivered, mugs=2), stock("MUG-BLUE")
    pauses.pause("agent", "payment", reason="maintenance", by="olga")
    goods(shop, back, ("MUG-BLUE", 2))
    assert stock("MUG-BLUE") == before + 2
    made = correct(back, report(mugs=(1, 1)))
    assert (made.paid, made.refund, str(made.too_much)) == (False, "", "0.00")
    assert (stock("MUG-BLUE"), held(delivered)["MUG-BLUE"]) == (before + 1, 1)
    assert code_of(back, report(mugs=0), once="two") == "nothing_accepted"
    pauses.lift("agent", "payment", reason="done", by="olga")
    shop.advance("1m")
    issue()

    Run(back).assert_state("Processed")
    assert refunds_made(services, delivered) == [1290]
    assert str(Document.objects.get(kind="credit_note").total) == "12.90"
    shop.assert_healthy()


def test_the_payout_at_the_bank_is_what_the_corrected_report_is_worth(shop, ada, olga):
    key = place(ada, lines=LINES, payment_method=payment_codes.BANK_TRANSFER)
    shop.run()
    send_signal(key, payment_codes.TRANSFER, {"amount": "79.80", "currency": "EUR", "reference": "T1"})
    shop.run()
    back = asked(shop, key, mugs=2)
    goods(shop, back, ("MUG-BLUE", 1))
    correct(back, report(mugs=2))
    assert told(olga, back)["owed"] == "25.80"

    assert olga.post(f"/api/v1/returns/{back}/payout/", {"amount": "12.90", "reference": "O", "reason": "x"}).status_code == 400
    assert olga.post(f"/api/v1/returns/{back}/payout/", {"amount": "25.80", "reference": "O", "reason": "x"}).status_code == 202
    shop.run()
    Run(back).assert_state("Processed")
    shop.assert_healthy()


# ------------------------------------------------------------------------------------------------------------ refusals


def code_of(*arguments, **options) -> str:
    with pytest.raises(Refused) as refused:
        correct(*arguments, **options)
    return refused.value.code


def test_what_cannot_be_corrected_is_refused_with_its_code_and_changes_nothing(shop, delivered, returned, services):
    waiting = asked(shop, delivered, mugs=1)
    assert code_of(waiting, report(mugs=1)) == "not_reported"
    assert code_of(returned, report(mugs=(1, 1), totes=1)) == "nothing_changes"
    assert code_of(returned, report(mugs=2, totes=1)) == "beyond_delivered", "the other mug is asked for by another return"
    with pytest.raises(Unreadable, match="lines"):
        correct(returned, report(mugs=3))
    with pytest.raises(UnknownRun):
        correct("nothing", report(mugs=1))
    operator_verbs.cancel(waiting, by="olga", reason="x")
    shop.advance("1m")
    assert code_of(waiting, report(mugs=1)) == "return_undone"
    stock_is(0)
    assert code_of(returned, report(mugs=0, totes=1)) == "sold_again"
    assert not ReturnCorrection.objects.exists()
    assert lines_of(returned) == {"MUG-BLUE": (1, 1, 1, 1), "TOTE-OCHRE": (1, 0, 1, 1)}


def stock_is(pieces: int) -> None:
    call_command("set_stock", "MUG-BLUE", str(pieces), stdout=StringIO())


def test_a_return_that_may_have_paid_is_refused(shop, delivered, services):
    back = asked(shop, delivered, totes=2)
    shop.kill("refund-part", at="agent.after_effect")
    goods(shop, back, ("TOTE-OCHRE", 2))

    assert services.charged(delivered) == 7980 - 3600
    assert code_of(back, report(totes=1)) == "return_under_way"
    shop.advance("10m")
    assert str(correct(back, report(totes=1)).too_much) == "18.00"
    assert refunds_made(services, delivered) == [3600]


def test_a_return_that_stopped_before_its_money_went_out_pays_what_the_corrected_report_says(shop, delivered, services):
    back, before = asked(shop, delivered, totes=2), stock("TOTE-OCHRE")
    services.faults("payment", "error_before")  # the look at the charge fails, so no refund was tried
    goods(shop, back, ("TOTE-OCHRE", 2))
    shop.advance("3h")
    Run(back).assert_state("Error")
    correct(back, report(totes=(1, 1)))
    services.clear()
    operator_verbs.resubmit(back, by="olga", reason="the report is corrected")
    shop.advance("1m")

    Run(back).assert_state("Processed")
    assert refunds_made(services, delivered) == [1800]
    assert stock("TOTE-OCHRE") == before + 1
    shop.assert_healthy()


def test_a_return_whose_order_has_left_for_the_archive_meanwhile_is_not_corrected(shop, delivered, returned):
    OrderLine.objects.all().delete()
    Order.objects.filter(public_id=delivered).delete()

    with pytest.raises(UnknownRun):
        correct(returned, report(mugs=2, totes=1))

    assert not ReturnCorrection.objects.exists()


def test_the_same_key_corrects_once_and_another_report_under_it_is_refused(shop, delivered, returned, services):
    first, second = correct(returned, report(mugs=2, totes=1)), correct(returned, report(mugs=2, totes=1))
    with pytest.raises(KeyReused):
        correct(returned, report(mugs=0, totes=1))
    shop.run()

    assert first.pk == second.pk
    assert refunds_made(services, delivered) == [3090, 1290]


def test_of_many_who_saw_the_same_report_one_corrects_it(shop, delivered, returned, services):
    def one(number: int) -> str:
        try:
            return correct(returned, report(mugs=2, totes=1), once=f"key-{number}", version=0).refund
        except (ChangedMeanwhile, Refused) as refused:
            return refused.code

    found = at_once(*[lambda number=number: one(number) for number in range(4)])
    shop.run()

    assert sum(len(one) > 20 for one in found) == 1, found
    assert refunds_made(services, delivered) == [3090, 1290]
    assert ReturnCorrection.objects.count() == Refund.objects.count() == 1
    with pytest.raises(ChangedMeanwhile):
        correct(returned, report(mugs=1, totes=1), once="late", version=0)
    shop.assert_healthy()


def test_above_the_limit_another_operator_approves_the_money(shop, delivered, returned, services, settings):
    settings.SUPERVISION = {**settings.SUPERVISION, "APPROVAL_ABOVE": {"": "5"}}
    one, two = an_account("one", "operator"), an_account("two", "operator")
    with pytest.raises(AwaitsApproval) as waits:
        correct(returned, report(mugs=2, totes=1), by=one)
    assert not ReturnCorrection.objects.exists()
    deciding.approve(waits.value.approval, by=two, reason="seen")
    shop.run()

    assert correct(returned, report(mugs=2, totes=1), by=one) == ReturnCorrection.objects.get()
    assert Approval.objects.get().state == "approved"
    assert refunds_made(services, delivered) == [3090, 1290]


def test_of_two_reports_that_wait_under_one_key_the_second_fails_and_says_why(shop, delivered, returned, settings):
    settings.SUPERVISION = {**settings.SUPERVISION, "APPROVAL_ABOVE": {"": "5"}}
    one, two = an_account("one", "operator"), an_account("two", "operator")
    asked = []
    for said in (report(mugs=2, totes=1), report(mugs=2, totes=(0, 1))):
        with pytest.raises(AwaitsApproval) as waits:
            correct(returned, said, by=one)
        asked.append(waits.value.approval)
    deciding.approve(asked[0], by=two, reason="seen")

    with pytest.raises(ChangedMeanwhile, match="This idempotency key was used before"):
        deciding.approve(asked[1], by=two, reason="seen")

    assert Approval.objects.get(pk=asked[1]).state == "failed"
    assert ReturnCorrection.objects.count() == 1


# --------------------------------------------------------------------------------------------------------------- doors


def test_the_api_plans_and_corrects_once(shop, delivered, returned, olga, services):
    at, said = f"/api/v1/returns/{returned}/correction/", {"lines": report(mugs=2, totes=1)["lines"]}
    shown = olga.post(f"{at}plan/", said)
    assert shown.status_code == 200
    assert {name: shown.json()[name] for name in ("version", "paid", "worth", "worth_before", "further", "too_much", "stock")} == {
        "version": 0,
        "paid": True,
        "worth": "43.80",
        "worth_before": "30.90",
        "further": "12.90",
        "too_much": "0.00",
        "stock": {"MUG-BLUE": 1, "TOTE-OCHRE": 0},
    }
    assert not ReturnCorrection.objects.exists()

    body = {**said, "reason": "counted wrong", "version": 0}
    assert olga.post(at, body).status_code == 400
    wrong = olga.post(f"{at}plan/", {"lines": report(mugs=3)["lines"]})
    assert (wrong.status_code, list(wrong.json()["errors"])) == (400, ["lines[0].accepted"])
    for _ in range(2):
        assert olga.post(at, body, headers={"Idempotency-Key": "c1"}).status_code == 202
    late = olga.post(at, {**body, "lines": report(totes=1)["lines"]}, headers={"Idempotency-Key": "c2"})
    assert late.status_code == 409
    shop.run()
    assert refunds_made(services, delivered) == [3090, 1290]


def test_the_command_plans_and_corrects_once(shop, delivered, returned, services):
    def run(*more: str) -> str:
        out = StringIO()
        call_command("correct_return", returned, "--line", "MUG-BLUE=2", "--line", "TOTE-OCHRE@18.00=1,0", *more, stdout=out)
        return out.getvalue()

    assert "12.90 EUR go back" in run("--plan")
    assert json.loads(run("--plan", "--json"))["further"] == "12.90"
    with pytest.raises(CommandError, match="--key"):
        run()
    for _ in range(2):
        run("--key", "T-1", "--reason", "counted wrong", "--seen", "0")
    shop.run()
    assert refunds_made(services, delivered) == [3090, 1290]
    with pytest.raises(CommandError, match="refused: This return was corrected"):
        call_command("correct_return", returned, "--line", "MUG-BLUE=1", "--key", "T-2", "--reason", "x", "--seen", "0")
    with pytest.raises(CommandError, match="--line"):
        call_command("correct_return", returned, "--line", "MUG-BLUE", "--plan")


def test_the_console_shows_what_a_correction_does_and_then_corrects_once(shop, delivered, returned, services, client):
    client.force_login(person("otto", "operator"))
    order = Order.objects.get(public_id=delivered)
    at = page(order).replace("change", f"correct/{returned}")
    assert at in client.get(page(order)).text
    asks = client.get(at).text
    mug, tote = ReturnLine.objects.filter(of__public_id=returned).order_by("pk")
    said = {f"accepted-{mug.pk}": "2", f"refused-{mug.pk}": "0", f"accepted-{tote.pk}": "1", f"refused-{tote.pk}": "0"}
    said |= {"reason": "counted wrong", "key": hidden(asks)["key"], "shown": ""}

    shown = client.post(at, said).text
    assert "12.90 EUR go back to the card" in shown
    assert not ReturnCorrection.objects.exists()
    said["shown"] = hidden(shown)["shown"]
    assert client.post(at, {**said, f"accepted-{tote.pk}": "0"}).status_code == 200, "another report is shown first"
    for _ in range(2):
        client.post(at, said)
    shop.run()

    assert ReturnCorrection.objects.count() == 1
    assert refunds_made(services, delivered) == [3090, 1290]
    client.force_login(person("vera", "viewer"))
    assert client.get(at).status_code == 403
    assert at not in client.get(page(order)).text
