"""What comes in the place of a browser's answer, and cannot be read, is refused as every other answer that proves nothing."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from allauth.account.utils import user_pk_to_url_str
from allauth.mfa.models import Authenticator
from fido2.utils import websafe_encode
from fido2.webauthn import AttestationObject, AuthenticatorData, CollectedClientData

from tests.factors.conftest import sign_in

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
