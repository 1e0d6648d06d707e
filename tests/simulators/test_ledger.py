"""The simulators' effects and stored answers survive kill -9."""

from __future__ import annotations

import smtplib
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from orders.simulators.ledger import Entry, Ledger
from tests.support import forked
from tests.support.simulators import KEY, ROOT, Simulators


@pytest.fixture
def own(tmp_path):
    """Simulators for this test alone, which it kills."""
    with Simulators.started(tmp_path / "ledger.jsonl") as simulators:
        yield simulators


def _create(simulators, order):
    return simulators.http.post(
        f"{simulators.url}/v1/payment_intents",
        data={"amount": "100", "currency": "eur", "metadata[order]": order},
        headers={**KEY, "Idempotency-Key": f"{order}:create"},
    )


def _book(simulators, key):
    body = {"reference": key, "to": {"country": "IT"}, "items": [{"sku": "MUG", "quantity": 1}]}
    return simulators.http.post(f"{simulators.url}/v1/shipments", json=body, headers={"Idempotency-Key": key})


def _mail(simulators, message_id):
    with smtplib.SMTP(*simulators.smtp, timeout=5) as smtp:
        smtp.sendmail("a@shop.example", ["b@example.com"], f"Message-ID: <{message_id}>\r\nX-Order-ID: o\r\n\r\nHi\r\n")


def test_the_services_know_everything_again_after_kill_9(own):
    intent = _create(own, "o").json()["id"]
    confirm = f"{own.url}/v1/payment_intents/{intent}/confirm"
    refused = own.http.post(confirm, data={"payment_method": "pm_card_visa_chargeDeclined"}, headers={**KEY, "Idempotency-Key": "1"})
    own.http.post(confirm, data={"payment_method": "pm_card_visa"}, headers={**KEY, "Idempotency-Key": "2"})
    own.http.post(f"{own.url}/v1/refunds", data={"payment_intent": intent, "amount": "40"}, headers={**KEY, "Idempotency-Key": "3"})
    shipment = _book(own, "o").json()
    own.http.delete(f"{own.url}/v1/shipments/by-key/tombstone")
    _mail(own, "key@shop.example")
    before = {service: own.ledger(service) for service in ("payment", "carrier", "mail")}

    own.restart()

    assert {service: own.ledger(service) for service in before} == before
    replayed = own.http.post(confirm, data={"payment_method": "pm_card_visa_chargeDeclined"}, headers={**KEY, "Idempotency-Key": "1"})
    assert (replayed.status_code, replayed.content) == (402, refused.content)
    assert _create(own, "o").json()["id"] == intent
    assert own.status(intent) == "succeeded"
    rest = own.http.post(f"{own.url}/v1/refunds", data={"payment_intent": intent}, headers={**KEY, "Idempotency-Key": "4"})
    assert rest.json()["amount"] == 60
    assert _book(own, "o").json() == shipment
    assert _book(own, "tombstone").status_code == 410
    _mail(own, "key@shop.example")
    assert [entry["answer"] for entry in own.ledger("mail")] == ["250", "250 (repeated)"]


def test_whatever_was_answered_is_in_the_ledger_when_the_process_is_killed_under_load(own):
    answered = []

    def work(worker):
        with httpx2.Client(timeout=5, trust_env=False) as client:
            for number in range(10_000):
                order = f"{worker}-{number}"
                try:
                    answer = client.post(
                        f"{own.url}/v1/payment_intents",
                        data={"amount": "1", "currency": "eur", "metadata[order]": order},
                        headers={**KEY, "Idempotency-Key": order},
                    )
                except httpx2.HTTPError:
                    return
                answered.append((order, answer.json()["id"]))
                if len(answered) == 300:
                    own.kill()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    own.start()

    kept = {entry["order"]: entry["intent"] for entry in own.ledger("payment")}
    assert len(answered) >= 300
    assert all(kept[order] == intent for order, intent in answered)


def test_a_line_that_a_crash_cut_short_is_dropped(own):
    _create(own, "whole")
    own.kill()
    with own.ledger_file.open("ab") as file:
        file.write(b'{"service": "payment", "time": "20')

    own.start()
    _create(own, "next")

    assert [entry["order"] for entry in own.ledger("payment")] == ["whole", "next"]


def test_a_second_process_on_the_same_ledger_is_refused_in_one_line(own):
    command = [sys.executable, "manage.py", "simulators", "--port", "0", "--smtp-port", "0", "--ledger", str(own.ledger_file)]
    second = forked.run(command, cwd=ROOT, timeout=60)

    assert second.returncode != 0
    assert "another simulator writes" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_taken_port_is_told_in_one_line(own, tmp_path):
    port = own.url.rpartition(":")[2]
    command = [sys.executable, "manage.py", "simulators", "--port", port, "--ledger", str(tmp_path / "other.jsonl")]
    second = forked.run(command, cwd=ROOT, timeout=60)

    assert second.returncode != 0
    assert "Traceback" not in second.stderr


def test_a_caller_that_gives_up_takes_no_entry_back(tmp_path):
    """The mail server's task ends when its client is killed in the middle of a delivery."""
    ledger = Ledger(tmp_path / "ledger")
    written = ledger.append(Entry(service="mail", key="k", order="o", operation="deliver", effect=True, answer="250"))

    assert not written.cancel()
    assert list(ledger.replay()) == []  # starts the writer
    written.result(10)
    ledger.close()
    assert (tmp_path / "ledger").read_text().count("\n") == 1
