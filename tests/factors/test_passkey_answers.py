"""What a browser answers for a passkey: what cannot be read proves nothing, and a challenge lasts as long as its form is kept."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import pytest
from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives.asymmetric import ec
from fido2.cose import ES256
from fido2.utils import websafe_encode
from fido2.webauthn import Aaguid, AttestationObject, AttestedCredentialData, AuthenticatorData, CollectedClientData

from tests.factors.conftest import PASSWORD, sign_in
from tests.factors.test_money_verbs import kept

pytestmark = pytest.mark.django_db
HOST = hashlib.sha256(b"testserver").digest()
MORE, USED = AuthenticatorData.FLAG.ED, AuthenticatorData.FLAG.UP | AuthenticatorData.FLAG.UV


def answer(kind: str, challenge: str, **told: bytes) -> str:
    """An answer as the page sends it."""
    parts = {"clientDataJSON": CollectedClientData.create(kind, challenge, "https://testserver"), **told}
    response = {name: websafe_encode(bytes(part)) for name, part in parts.items()}
    return json.dumps({"id": "AAAA", "rawId": "AAAA", "type": "public-key", "response": response, "clientExtensionResults": {}})


@pytest.mark.parametrize("cut", [b"", b"\x18", b"\x19\x00", b"\x9b" + b"\xff" * 8])
def test_an_answer_that_ends_in_its_middle_is_refused_as_a_wrong_one(client, ops, cut) -> None:
    ours = user_pk_to_url_str(ops).encode()
    said = answer("webauthn.get", "AAAA", authenticatorData=HOST + bytes([MORE]) + bytes(4) + cut, signature=b"none", userHandle=ours)

    refused = client.post("/admin/second-factor/passkey/", {"credential": said})

    assert (refused.status_code, "The passkey was not accepted" in refused.text) == (403, True)
    assert "_auth_user_id" not in client.session


def test_a_passkey_without_its_key_is_not_enrolled(client, ops, settings: Any) -> None:
    settings.CONSOLE_SECOND_FACTOR = "required"
    sign_in(client)
    client.get("/admin/second-factor/enrol/")
    made = AttestationObject.create("none", AuthenticatorData.create(HOST, USED, 0), {})

    said = answer("webauthn.create", client.session["mfa.webauthn.state"]["challenge"], attestationObject=made)
    refused = client.post("/admin/second-factor/enrol/", {"credential": said, "name": "mine"})

    assert (refused.status_code, "The passkey was not accepted" in refused.text) == (400, True)
    assert not Authenticator.objects.exists()


def a_passkey(challenge: str) -> str:
    """A new passkey, as a browser makes it."""
    key = ES256.from_cryptography_key(ec.generate_private_key(ec.SECP256R1()).public_key())
    about = AttestedCredentialData.create(Aaguid.NONE, os.urandom(16), key)
    made = AttestationObject.create("none", AuthenticatorData.create(HOST, USED | AuthenticatorData.FLAG.AT, 0, about), {})
    return answer("webauthn.create", challenge, attestationObject=made)


def test_a_second_passkey_is_enrolled_after_the_page_has_asked_again(client, ops, settings: Any) -> None:
    settings.CONSOLE_SECOND_FACTOR = "required"
    sign_in(client)
    page = "/admin/second-factor/enrol/"
    for name, status in (("first", 201), ("second", 403)):
        assert client.get(page).status_code == 200
        made = a_passkey(client.session["mfa.webauthn.state"]["challenge"])
        session = client.session
        session["proved"] = [session["proved"][0] - (901 if name == "second" else 0), session["proved"][1]]
        session.save()
        said = client.post(page, {"credential": made, "name": name})
        assert said.status_code == status

    gone_on = client.post(page, {**kept(said.text), "proof-kind": "password", "proof-password": PASSWORD})

    assert gone_on.status_code == 302
    assert [str(one) for one in Authenticator.objects.filter(type="webauthn").order_by("pk")] == ["first", "second"]
