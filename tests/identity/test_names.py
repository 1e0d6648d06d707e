"""Characters that steer a terminal or turn the direction of text are in no name, at no door."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError
from rest_framework.exceptions import ValidationError

from orders.accounts.tables import SavedAddress
from orders.factors import passkeys
from orders.identity.tables import TokenGrant
from orders.validation import read_order
from supervision.models import SavedView
from tests.commands.conftest import Manage
from tests.factors.conftest import sign_in
from tests.shopping import PASSWORD, a_request
from tests.support.console import group

pytestmark = [pytest.mark.usefixtures("no_hints"), pytest.mark.django_db]
TURNING = ["\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"]
REFUSED = [*TURNING, "\u2028", "\u2029", "\ufeff", "\x1b", "\x7f", "\x9b"]
ADDRESS = {"name": "Ada", "line1": "Via Roma 1", "city": "Torino", "postal_code": "10121", "country": "IT"}


@pytest.mark.parametrize("sign", REFUSED, ids=ascii)
@pytest.mark.parametrize("field", ["name", "line1", "line2", "city"])
def test_an_order_has_no_such_sign_in_name_and_address(field: str, sign: str) -> None:
    with pytest.raises(ValidationError) as told:
        read_order(a_request(shipping_address={**ADDRESS, field: f"Ada{sign}gnp.exe"}))

    assert list(told.value.detail) == ["shipping_address"]
    assert list(told.value.detail["shipping_address"]) == [field]


@pytest.mark.parametrize("sign", TURNING, ids=ascii)
def test_the_address_book_has_none(sign: str, client, ada) -> None:
    client.force_login(ada, "django.contrib.auth.backends.ModelBackend")

    assert client.post("/accounts/addresses/new/", {**ADDRESS, "name": f"Ada{sign}gnp.exe"}).status_code == 400
    assert not SavedAddress.objects.exists()


@pytest.mark.parametrize("sign", TURNING, ids=ascii)
def test_a_tokens_name_has_none_on_the_page_and_by_command(sign: str, client, ada, manage: Manage) -> None:
    client.force_login(ada, "django.contrib.auth.backends.ModelBackend")
    form = {"name": f"my{sign}tpircs", "scope": "read", "days": 1, "password": PASSWORD}

    assert client.post("/accounts/tokens/", form).status_code == 400
    with pytest.raises(CommandError, match=r"^--name has a control character"):
        manage("create_api_token", "ada", "--name", form["name"])
    assert not TokenGrant.objects.exists()


@pytest.mark.parametrize("sign", TURNING, ids=ascii)
def test_a_saved_views_name_has_none(sign: str, client, ops) -> None:
    ops.groups.add(group("operator"))
    client.force_login(ops, "django.contrib.auth.backends.ModelBackend")

    client.post("/admin/orders/order/views/save/", {"name": f"my{sign}srorre", "query": "process_state=Error"})

    assert not SavedView.objects.exists()


def test_a_passkeys_name_loses_them(client, ops, settings, monkeypatch) -> None:
    settings.CONSOLE_SECOND_FACTOR = "required"
    names: list[str] = []

    def added(account: Any, name: str, credential: Any) -> None:
        names.append(name)

    for name in ("parse_registration_response", "complete_registration"):
        monkeypatch.setattr(passkeys.auth, name, lambda credential: None)
    monkeypatch.setattr(passkeys.auth.WebAuthn, "add", added)
    sign_in(client)

    client.post("/admin/second-factor/enrol/", {"credential": "{}", "name": f"my {''.join(REFUSED)}key"})

    assert names == ["my key"]
