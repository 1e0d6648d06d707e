"""T25: secrets are encrypted in the database, opened once for each connection, encrypted again under a new key, and lost in one line."""

from __future__ import annotations

import base64
import hashlib
import logging
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth
from cryptography.fernet import Fernet
from django.contrib.auth.models import User
from django.core.exceptions import FieldError
from django.core.management import CommandError, call_command
from django.test import Client
from standardwebhooks.webhooks import Webhook

from orders.factors import codes, library
from supervision.models import Channel, Delivery, Telling, WebhookEndpoint
from supervision.operations import doctor
from supervision.operations.doctor import Level
from supervision.outbox import channels, status_sender, subscriptions
from supervision.outbox.status_sender import deliver_all
from supervision.postgres import db
from supervision.sealing import rows, texts
from supervision.sealing.texts import MARK, Unopened, Unreadable, opened, seal
from tests.outbound import kit
from tests.support.console import person

pytestmark = pytest.mark.usefixtures("out")

SLACK = "https://hooks.slack.example/services/T0/B0/token"
ROUTING = "R" * 32
SEED = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
NEW, NEWER = "a new key of forty characters, at least..", "a newer key of forty characters, at least"
TABLES = ("supervision_webhookendpoint", "supervision_channel", "mfa_authenticator")


@pytest.fixture
def ada() -> Any:
    """An account with an authenticator app and recovery codes."""
    account = User.objects.create_user("ada-of-secrets")
    auth.TOTP.activate(account, SEED)
    yield account
    Authenticator.objects.filter(user=account).delete()
    account.delete()


@pytest.fixture
def filled(ada: User, receiver: kit.Receiver) -> list[str]:
    """A secret in each place that has them; what a copy of the database may not show."""
    recovery = codes.new_recovery_codes(ada)
    hook = kit.listen(receiver.url)
    Channel.objects.create(name="slack", kind="slack", secret=SLACK, active=False)
    Channel.objects.create(name="pager", kind="pagerduty", address="https://pager.example/key", secret=ROUTING, active=False)
    return [hook.secret, hook.secret.removeprefix("whsec_"), SLACK, ROUTING, "https://pager.example/key", SEED, *recovery]


def copy_of_the_database() -> str:
    """The rows of the tables with secrets, as a copy of the database has them."""
    return "\n".join(str(row) for table in TABLES for row in db.fetch(f"SELECT t::text FROM {table} t"))  # noqa: S608


def stored() -> list[str]:
    return [row.stored for _place, store in rows.stores() for row in store()]


def in_plain_text(hook: WebhookEndpoint) -> None:
    """The row as a version before the encryption has written it."""
    db.run("UPDATE supervision_webhookendpoint SET secret = %(secret)s WHERE id = %(id)s", {"secret": hook.secret, "id": hook.pk})


def lose_the_keys(settings: Any) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS, settings.FIELD_ENCRYPTION_KEYS = "another key", [], []


def test_a_copy_of_the_database_shows_no_secret(filled: list[str]):
    copy = copy_of_the_database()

    assert [secret for secret in filled if secret in copy] == []
    assert len(stored()) == 6
    assert {text[: len(MARK)] for text in stored()} == {MARK}


def test_a_message_is_signed_with_the_secret_that_was_shown_also_from_before_the_encryption(receiver: kit.Receiver):
    hook = kit.listen(receiver.url)
    for write in (lambda _: None, in_plain_text):
        write(hook)
        subscriptions.send_test(hook, by="ada")
        deliver_all()

        Webhook(hook.secret).verify(receiver.messages[-1].body, receiver.messages[-1].headers)
    assert len(receiver.messages) == 2


def test_a_lane_of_many_messages_opens_its_secret_once(receiver: kit.Receiver, monkeypatch: pytest.MonkeyPatch):
    kit.listen(receiver.url)
    for _ in range(3):
        kit.done()
    asked: list[str] = []
    monkeypatch.setattr(status_sender, "opened", lambda text: asked.append(text) or opened(text))
    monkeypatch.setattr(status_sender, "LANES", 1)

    deliver_all()

    assert len(receiver.messages) == 9
    assert len(asked) == 1


def test_a_new_key_encrypts_each_secret_again_and_the_old_one_can_be_taken_away(filled: list[str], settings: Any, capsys: Any):
    before = stored()
    settings.FIELD_ENCRYPTION_KEYS = [NEW]
    call_command("rotate_secrets", "--check")
    assert "1 secrets; 0 in plain text; 1 under an older key" in capsys.readouterr().out
    assert stored() == before

    call_command("rotate_secrets")
    out = capsys.readouterr().out
    call_command("rotate_secrets")
    again = capsys.readouterr().out

    assert "supervision_webhookendpoint.secret: 1 secrets; 0 in plain text, encrypted now; 1 under an older key, encrypted now" in out
    assert again.count("0 in plain text, encrypted now; 0 under an older key") == len(list(rows.stores()))
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another key", []
    assert WebhookEndpoint.objects.get().secret == filled[0]
    assert (Channel.objects.get(name="slack").secret, Channel.objects.get(name="pager").address) == (SLACK, filled[4])
    assert library.Factors().decrypt(Authenticator.objects.get(type="totp").data["secret"]) == SEED
    settings.FIELD_ENCRYPTION_KEYS = [NEWER, NEW]
    assert WebhookEndpoint.objects.get().secret == filled[0]


def test_secrets_from_before_are_encrypted_by_the_command(receiver: kit.Receiver, ada: User, settings: Any):
    hook = kit.listen(receiver.url)
    in_plain_text(hook)
    key = base64.urlsafe_b64encode(hashlib.sha256(f"factors:{settings.SECRET_KEY}".encode()).digest())  # as the version before made it
    Authenticator.objects.filter(user=ada).update(data={"secret": Fernet(key).encrypt(SEED.encode()).decode()})
    [warned] = [each for each in doctor.secrets() if "webhookendpoint" in each.message]
    assert (warned.level, warned.message) == (Level.WARN, "supervision_webhookendpoint.secret: 1 in plain text, 0 under an older key")

    call_command("rotate_secrets")

    assert all(text.startswith(MARK) for text in stored())
    assert Authenticator.objects.get().data["secret"].startswith(MARK)
    assert (WebhookEndpoint.objects.get().secret, library.Factors().decrypt(Authenticator.objects.get().data["secret"])) == (
        hook.secret,
        SEED,
    )
    assert {each.level for each in doctor.secrets()} == {Level.OK}


def test_a_secret_that_changes_while_it_is_encrypted_again_is_kept(receiver: kit.Receiver, settings: Any):
    hook = kit.listen(receiver.url)
    settings.FIELD_ENCRYPTION_KEYS = [NEW]
    [row] = [row for place, store in rows.stores() if place == "supervision_webhookendpoint.secret" for row in store()]
    hook.secret = "whsec_bmV3"
    hook.save()

    assert not row.write(seal("whsec_b2xk"))
    assert WebhookEndpoint.objects.get().secret == "whsec_bmV3"


def test_without_its_key_a_delivery_fails_with_the_reason_and_no_traceback(receiver: kit.Receiver, settings: Any, caplog: Any):
    hook = kit.listen(receiver.url)
    row = subscriptions.send_test(hook, by="ada")
    lose_the_keys(settings)

    with caplog.at_level(logging.WARNING):
        deliver_all()

    row = Delivery.objects.get(pk=row.pk)
    assert (row.delivered_at, row.status_code, row.given_up_at is not None) == (None, None, True)
    assert "the secret cannot be decrypted: FIELD_ENCRYPTION_KEYS and SECRET_KEY lack its key" in row.last_error
    assert receiver.messages == []
    assert [record.exc_info for record in caplog.records if "webhook" in record.message] == [None]


def test_without_their_keys_channels_say_so_and_can_be_given_others(receiver: kit.Receiver, settings: Any, caplog: Any):
    channel = Channel.objects.create(name="hook", kind="webhook", address=receiver.url, secret="whsec_c2VjcmV0")
    lose_the_keys(settings)

    with caplog.at_level(logging.WARNING):
        row = channels.send_test(Channel.objects.get())

    assert "lack its key" in Telling.objects.get(pk=row.pk).last_error
    assert [record.exc_info for record in caplog.records if "channel" in record.message] == [None]
    client = Client()
    client.force_login(person("opal-of-secrets", "operator"))
    page = client.get(f"/admin/supervision/channel/{channel.pk}/change/").content.decode()
    assert "lack its key" in page
    assert MARK not in page
    assert "its secret cannot be decrypted" in client.get("/admin/supervision/channel/").content.decode()
    given = {"name": "hook", "kind": "webhook", "address": receiver.url, "secret": "whsec_bmV3", "least": "warning", "active": "on"}
    client.post(f"/admin/supervision/channel/{channel.pk}/change/", given)
    channel = Channel.objects.get()
    assert (channel.address, channel.secret, type(channel.secret)) == (receiver.url, "whsec_bmV3", str)


def test_without_its_key_a_webhook_is_listed_changed_and_reported(receiver: kit.Receiver, settings: Any):
    hook = kit.listen(receiver.url)
    [before] = stored()
    lose_the_keys(settings)
    client = Client()
    client.force_login(person("oda-of-secrets", "operator"))

    assert "its secret cannot be decrypted" in client.get("/admin/supervision/webhookendpoint/").content.decode()
    client.post(f"/admin/supervision/webhookendpoint/{hook.pk}/change/", {"initial-active": "True", "active": ""})

    assert (WebhookEndpoint.objects.get().active, stored()) == (False, [before])
    [found] = [each for each in doctor.secrets() if each.level is Level.FAIL]
    assert f"supervision_webhookendpoint.secret: 1 unreadable, such as id {hook.pk}: the secret cannot be decrypted" in found.message
    with pytest.raises(CommandError, match="1 secrets cannot be decrypted"):
        call_command("rotate_secrets")
    assert stored() == [before]


def test_a_sealed_text_that_is_typed_in_is_a_secret_like_any_other():
    """Else who has a copy of the database could have a secret opened, and sent to an address of theirs."""
    theirs = seal("whsec_c2VjcmV0")
    Channel.objects.create(name="pager", kind="pagerduty", secret=theirs)

    assert Channel.objects.get().secret == theirs
    assert texts.usable(Channel.objects.get().secret) == theirs


def test_a_damaged_secret_and_an_empty_one(settings: Any):
    sealed = seal("whsec_c2VjcmV0")

    with pytest.raises(Unreadable, match="it is damaged"):
        opened(sealed[:-8] + "AAAAAAA=")
    with pytest.raises(Unreadable):
        texts.usable(Unopened(sealed))
    assert (seal(""), opened("")) == ("", "")
    with pytest.raises(FieldError):
        WebhookEndpoint.objects.filter(secret="whsec_c2VjcmV0").exists()


def test_code_from_before_the_encryption_signs_nothing_with_a_sealed_secret():
    """It gives the stored text to this library as it is: an error, after which it tries again later, and never a wrong signature."""
    for _ in range(20):
        with pytest.raises(ValueError, match="ASCII"):
            Webhook(seal("whsec_c2VjcmV0"))
