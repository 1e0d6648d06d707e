"""API tokens: what each carries, who ends them, and what ends them by itself."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.utils import timezone
from knox.models import AuthToken
from rest_framework.test import APIClient

from orders.identity import tokens
from orders.identity.hashing import OneAtATime
from supervision.intake.consuming import consume_batch
from tests.commands.conftest import Manage
from tests.shopping import PASSWORD, a_request, an_account, place

pytestmark = [pytest.mark.usefixtures("no_hints", "mug"), pytest.mark.django_db]


def client_with(token: str) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    return client


def of(account: User, scope: str) -> APIClient:
    return client_with(tokens.issue(account, name="a test", scope=scope, days=1))


def test_a_token_of_each_scope_carries_so_much() -> None:
    cleo, boss = an_account("cleo", "client", "operator"), an_account("boss")
    boss.is_superuser = boss.is_staff = True
    boss.save()
    reads, orders, operates = (of(cleo, scope) for scope in ("read", "orders", "operate"))

    refused = reads.post("/api/v1/orders/", a_request())
    assert (refused.status_code, refused.json()["code"]) == (403, "token_reads_only")
    public_id = orders.post("/api/v1/orders/", a_request()).json()["id"]
    consume_batch(born=False)
    verb = f"/api/v1/orders/{public_id}/resubmit/"
    assert reads.get(f"/api/v1/orders/{public_id}/").status_code == 200
    assert [client.get("/api/v1/alerts/").status_code for client in (reads, orders, operates)] == [200] * 3
    assert [client.post(verb, {"reason": "x"}).status_code for client in (reads, orders, of(boss, "orders"))] == [403] * 3
    assert [client.post(verb, {"reason": "x"}).status_code for client in (operates, of(boss, "operate"))] == [409] * 2
    assert orders.get(f"/api/v1/orders/{public_id}/plan/").status_code == 403
    assert operates.get(f"/api/v1/orders/{public_id}/plan/").status_code != 403


def test_a_right_to_one_verb_at_one_agent_is_no_part_of_a_smaller_token() -> None:
    nina = an_account("nina", "viewer")
    nina.user_permissions.add(Permission.objects.get(codename="resubmit_run_at_payment"))
    verb = f"/api/v1/orders/{place()}/resubmit/"
    consume_batch(born=False)

    answers = [of(nina, scope).post(verb, {"reason": "x"}).status_code for scope in ("orders", "operate")]

    assert answers == [403, 409]


def test_a_token_of_before_there_were_scopes_carries_all() -> None:
    _, token = AuthToken.objects.create(an_account("cleo", "client"))

    assert client_with(token).post("/api/v1/orders/", a_request()).status_code == 202


def test_a_new_password_ends_every_token_of_the_account_and_of_no_other(client, ada, bob) -> None:
    hers, his = of(ada, "read"), of(bob, "read")
    client.force_login(ada, "django.contrib.auth.backends.ModelBackend")
    new = {"old_password": PASSWORD, "new_password1": "entirely-new-words", "new_password2": "entirely-new-words"}

    assert client.post("/accounts/password_change/", new).status_code == 302

    assert hers.get("/api/v1/orders/").status_code == 401
    assert his.get("/api/v1/orders/").status_code == 200


def test_a_password_that_is_stored_under_a_better_hash_ends_no_token(client, ada) -> None:
    hers = of(ada, "read")
    User.objects.filter(pk=ada.pk).update(password=OneAtATime().encode(PASSWORD, "s" * 22, 2))

    assert client.post("/accounts/login/", {"username": "ada", "password": PASSWORD}).status_code == 302

    assert User.objects.get(pk=ada.pk).password.split("$")[1] == "1"
    assert hers.get("/api/v1/orders/").status_code == 200


def test_an_address_that_can_name_no_token_is_unknown(client, ada) -> None:
    client.force_login(ada)

    assert client.post("/accounts/tokens/%00/revoke/").status_code == 404


def test_an_account_makes_lists_and_revokes_its_tokens(client, ada, bob) -> None:
    client.force_login(ada, "django.contrib.auth.backends.ModelBackend")
    page = client.get("/accounts/tokens/")
    assert "No token yet" in page.text
    assert 'value="operate"' not in page.text
    form = {"name": "warehouse", "scope": "read", "days": 30, "password": PASSWORD}

    assert client.post("/accounts/tokens/", form | {"password": "wrong"}).status_code == 400
    assert client.post("/accounts/tokens/", form | {"scope": "operate"}).status_code == 400
    made = client.post("/accounts/tokens/", form)

    assert made.status_code == 201
    token = re.search(r'class="token">(\w+)<', made.text).group(1)
    hers = client_with(token)
    assert hers.get("/api/v1/orders/").status_code == 200
    assert timedelta(days=29) < AuthToken.objects.get().expiry - timezone.now() <= timedelta(days=30)
    shown = client.get("/accounts/tokens/").text
    assert "warehouse" in shown
    assert token not in shown

    revoke = re.search(r'action="(/accounts/tokens/\w+/revoke/)"', shown).group(1)
    client.force_login(bob, "django.contrib.auth.backends.ModelBackend")
    client.post(revoke)
    assert hers.get("/api/v1/orders/").status_code == 200  # it is not bob's
    client.force_login(ada, "django.contrib.auth.backends.ModelBackend")
    assert "The token is revoked." in client.post(revoke, follow=True).text
    assert hers.get("/api/v1/orders/").status_code == 401


def test_an_account_has_few_tokens_and_its_password_is_not_guessed_here(client, ada) -> None:
    client.force_login(ada, "django.contrib.auth.backends.ModelBackend")
    form = {"name": "one of many", "scope": "read", "days": 1, "password": PASSWORD}

    answers = [client.post("/accounts/tokens/", form).status_code for _ in range(21)]
    assert answers == [201] * 20 + [400]
    AuthToken.objects.all().delete()
    answers = [client.post("/accounts/tokens/", form | {"password": "wrong"}).status_code for _ in range(10)]
    assert answers == [400] * 9 + [429]


def test_a_form_that_is_wrong_in_another_field_counts_as_no_try(client, ada) -> None:
    client.force_login(ada, "django.contrib.auth.backends.ModelBackend")
    form = {"name": "a script", "scope": "read", "days": 1, "password": PASSWORD}

    assert [client.post("/accounts/tokens/", form | {"days": 0}).status_code for _ in range(12)] == [400] * 12
    assert client.post("/accounts/tokens/", form).status_code == 201


def test_expired_tokens_do_not_count_and_go_with_the_next_one(client, ada) -> None:
    for _ in range(20):
        of(ada, "read")
    AuthToken.objects.update(expiry=timezone.now() - timedelta(days=1))
    client.force_login(ada, "django.contrib.auth.backends.ModelBackend")
    assert client.get("/accounts/tokens/").text.count("expired") == 20

    assert client.post("/accounts/tokens/", {"name": "new", "scope": "read", "days": 1, "password": PASSWORD}).status_code == 201

    assert AuthToken.objects.count() == 1


def test_an_administrator_revokes_a_token_in_the_console(admin_client, ada) -> None:
    hers = of(ada, "read")
    assert "ada" in admin_client.get("/admin/knox/authtoken/?q=ada").text
    kept = AuthToken.objects.get()

    admin_client.post(f"/admin/knox/authtoken/{kept.pk}/delete/", {"post": "yes"})

    assert hers.get("/api/v1/orders/").status_code == 401
    assert admin_client.get("/admin/knox/authtoken/add/").status_code == 403


@pytest.mark.parametrize(
    ("options", "days", "scope"),
    [((), 90, "operate"), (("--days", "7", "--scope", "read"), 7, "read"), (("--forever", "--scope", "orders"), None, "orders")],
)
def test_the_command_makes_a_token_that_ends(options: tuple[str, ...], days: int | None, scope: str, manage: Manage, ada) -> None:
    token = manage("create_api_token", "ada", "--name", "import", *options).lines[-1]

    kept = AuthToken.objects.select_related("grant").get()
    assert client_with(token).get("/api/v1/orders/").status_code == 200
    assert (kept.grant.name, kept.grant.scope) == ("import", scope)
    assert (kept.expiry is None) if days is None else (0 <= (timezone.now() + timedelta(days=days) - kept.expiry).total_seconds() < 60)
