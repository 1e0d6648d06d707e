"""The examples work: one verifies our signatures, the other prints our messages (see `test_replies`)."""

from __future__ import annotations

import base64
import time

import pytest
from standardwebhooks.webhooks import Webhook

from examples import verify_webhook
from supervision.outbox.webhooks import Caller, signed_headers
from tests.support.serving import serving

SECRET = "whsec_" + base64.b64encode(b"a secret of this test's own").decode()
BODY = '{"type":"order.processed","timestamp":"2026-01-01T00:00:00Z","data":{"order":"Zk3","seq":3,"status":"processed"}}'


def headers(**changes):
    return {**signed_headers(Webhook(SECRET), "msg_1", BODY), **changes}


def test_the_examples_check_accepts_what_we_sign():
    assert verify_webhook.verify(SECRET, headers(), BODY.encode())
    rotated = {"webhook-signature": f"v1,bm90IHRoaXMgb25l {headers()['webhook-signature']} v2,x"}
    assert verify_webhook.verify(SECRET, headers(**rotated), BODY.encode())


@pytest.mark.parametrize(
    ("changes", "secret", "body"),
    [
        ({}, SECRET, BODY.replace("processed", "cancelled")),
        ({}, "whsec_" + base64.b64encode(b"another account's").decode(), BODY),
        ({"webhook-id": "msg_2"}, SECRET, BODY),
        ({"webhook-timestamp": str(int(time.time()) - 600)}, SECRET, BODY),
        ({"webhook-timestamp": "soon"}, SECRET, BODY),
        ({"webhook-signature": ""}, SECRET, BODY),
        ({"webhook-signature": "v1,ü"}, SECRET, BODY),
        ({"webhook-signature": headers()["webhook-signature"].replace("v1,", "v2,")}, SECRET, BODY),
    ],
)
def test_the_examples_check_refuses_everything_else(changes, secret, body):
    assert not verify_webhook.verify(secret, headers(**changes), body.encode())


def test_the_examples_receiver_prints_each_message_once_and_refuses_forgeries(settings, capsys, monkeypatch):
    settings.WEBHOOK_ALLOW_PRIVATE = True
    monkeypatch.setattr(verify_webhook.Receiver, "secret", SECRET)
    monkeypatch.setattr(verify_webhook.Receiver, "seen", set())
    with serving(verify_webhook.Receiver) as url:
        ours, forged = Caller(f"{url}/", SECRET), Caller(f"{url}/", "whsec_" + base64.b64encode(b"guessed").decode())

        assert [ours.send("msg_1", BODY).delivered for _ in range(2)] == [True, True]
        assert forged.send("msg_2", BODY).status_code == 401
        ours.close()
        forged.close()

    assert capsys.readouterr().out.splitlines() == ["Zk3    3  processed"]
