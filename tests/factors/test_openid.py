"""Operators sign in at a real OpenID Connect provider, which signs its tokens with RS256."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.contrib.auth.models import Group, User
from django.test import Client
from jwt.algorithms import RSAAlgorithm

from chaos.look import TLS
from orders.factors import openid
from sasproject.factors import OIDC_PROVIDER
from tests.support.console import hidden

provider_mock = pytest.importorskip("oidc_provider_mock")
pytestmark = pytest.mark.django_db
BEGIN = "/admin/oidc/login/"


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """A provider at this address."""
    with provider_mock.run_server_in_thread() as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture(autouse=True)
def _configured(provider: str, settings: Any) -> None:
    app = {"provider_id": OIDC_PROVIDER, "name": "Example", "client_id": "console", "secret": "s"}
    app["settings"] = {"server_url": provider, "oauth_pkce_enabled": True}
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [app]}}
    settings.OIDC_GROUPS = {"order-desk": "operator", "auditors": "viewer"}
    settings.CONSOLE_SECOND_FACTOR = "required"


def person(provider: str, sub: str, **claims: Any) -> None:
    """What the provider says of this person."""
    httpx2.put(f"{provider}/users/{sub}", json=claims, verify=TLS).raise_for_status()


def come_back(client: Client, sub: str, next_page: str = "") -> Any:
    """Go to the provider, sign in there as this person, and come back."""
    away = client.get(BEGIN, {"next": next_page} if next_page else {})
    assert away.status_code == 302, away.text
    answer = httpx2.post(away["Location"], data={"sub": sub, "action": "authorize"}, follow_redirects=False, verify=TLS)
    back = urlsplit(answer.headers["Location"])
    return client.get(f"{back.path}?{back.query}")


def test_an_operator_signs_in_without_a_password_and_still_needs_a_second_factor(client, provider) -> None:
    person(provider, "olga", preferred_username="olga", email="olga@example.com", email_verified=True, groups=["order-desk", "others"])

    answer = come_back(client, "olga", "/admin/orders/order/")

    account = User.objects.get(username="olga")
    assert answer["Location"] == "/admin/orders/order/"
    assert (account.is_staff, account.is_superuser, account.has_usable_password()) == (True, False, False)
    assert [group.name for group in account.groups.all()] == ["operator"]
    assert client.get("/admin/")["Location"].startswith("/admin/second-factor/")


def test_who_is_in_no_group_of_ours_is_refused_and_leaves_nothing(client, provider) -> None:
    person(provider, "eve", groups=["others"])

    answer = come_back(client, "eve")

    assert answer.status_code == 403
    assert "in none of the provider&#x27;s groups" in answer.text
    assert User.objects.count() == 0
    assert "_auth_user_id" not in client.session


def test_who_has_left_the_groups_loses_the_console(client, provider) -> None:
    person(provider, "ida", groups=["auditors"])
    come_back(client, "ida")
    person(provider, "ida", groups=[])

    answer = come_back(Client(), "ida")

    account = User.objects.get()
    assert (answer.status_code, account.is_staff, account.groups.count()) == (403, False, 0)


def test_a_group_that_the_settings_do_not_give_any_more_is_taken_back(client, provider, settings) -> None:
    person(provider, "olga", groups=["order-desk"])
    come_back(client, "olga")
    account = User.objects.get()
    account.groups.add(Group.objects.create(name="refunds alone"))  # by an administrator, who gives what no provider does
    settings.OIDC_GROUPS = {"order-desk": "viewer"}

    come_back(Client(), "olga")

    assert sorted(group.name for group in account.groups.all()) == ["refunds alone", "viewer"]
    settings.OIDC_GROUPS = {"auditors": "viewer"}
    assert come_back(Client(), "olga").status_code == 403
    assert [group.name for group in account.groups.all()] == ["refunds alone"]


def test_no_account_is_joined_by_its_name_or_mail(client, provider) -> None:
    ours = User.objects.create_superuser("root", "root@example.com", "a password for tests")
    person(provider, "mallory", preferred_username="root", email="root@example.com", email_verified=True, groups=["auditors"])

    come_back(client, "mallory")

    theirs = User.objects.get(pk=client.session["_auth_user_id"])
    assert theirs.pk != ours.pk
    assert (theirs.username, theirs.is_superuser) == ("root-2", False)
    come_back(Client(), "mallory")
    assert User.objects.count() == 2


@pytest.mark.parametrize(
    ("trusted", "claims", "status"),
    [
        (True, {"amr": ["pwd", "mfa"]}, 200),
        (True, {"acr": "urn:example:mfa"}, 200),
        (True, {"amr": ["pwd"]}, 302),
        (False, {"amr": ["mfa"]}, 302),
    ],
)
def test_the_providers_second_factor_counts_where_it_is_trusted(trusted, claims, status, client, provider, settings) -> None:
    settings.OIDC_TRUSTS_MFA = trusted
    person(provider, "pia", groups=["order-desk"], **claims)

    come_back(client, "pia")

    assert client.get("/admin/").status_code == status


def test_a_provider_that_asks_for_nothing_proves_no_one_anew(client, provider, settings) -> None:
    settings.OIDC_TRUSTS_MFA = True
    person(provider, "pia", groups=["order-desk"], amr=["mfa"], auth_time=int(time.time()) - 3600)

    come_back(client, "pia")

    assert client.get("/admin/").status_code == 200
    asked = client.get("/admin/second-factor/enrol/")
    assert (asked.status_code, "Sign in again in another tab" in asked.text) == (403, True)
    person(provider, "pia", groups=["order-desk"], amr=["mfa"], auth_time=int(time.time()))
    come_back(client, "pia")
    assert client.get("/admin/second-factor/enrol/").status_code == 200


@pytest.mark.parametrize("more", ["", "?auth_params=prompt%3Dnone%26redirect_uri%3Dhttps://evil.example", "?scope=offline_access,admin"])
def test_the_provider_is_told_to_ask_again_whom_it_has_signed_in_here(client, provider, more) -> None:
    person(provider, "olga", groups=["order-desk"])

    def asked() -> dict[str, str]:
        there = dict(parse_qsl(urlsplit(client.get(f"{BEGIN}{more}")["Location"]).query))
        assert there["redirect_uri"] == "http://testserver/admin/oidc/login/callback/"
        assert set(there["scope"].split()) == {"openid", "profile", "email"}
        return {name: there[name] for name in ("prompt", "max_age") if name in there}

    first = asked()
    come_back(client, "olga")

    assert [first, asked()] == [{"max_age": "43200"}, {"prompt": "login", "max_age": "0"}]


def test_who_has_signed_in_again_in_another_tab_goes_on_in_the_first_one(provider, settings) -> None:
    settings.OIDC_TRUSTS_MFA = True
    client, long_ago = Client(enforce_csrf_checks=True), int(time.time()) - 3600
    person(provider, "pia", groups=["order-desk"], amr=["mfa"], auth_time=long_ago)
    come_back(client, "pia")
    page = "/admin/second-factor/enrol/"
    asked = client.get(page)
    typed = hidden(asked.text) | {"csrfmiddlewaretoken": re.search(r'csrfmiddlewaretoken" value="(\w+)"', asked.text).group(1)}

    too_early = client.post(page, typed, follow=True)
    person(provider, "pia", groups=["order-desk"], amr=["mfa"], auth_time=int(time.time()))
    come_back(client, "pia")
    gone_on = client.post(page, typed)

    assert [asked.status_code, too_early.status_code] == [403, 403]
    assert "Sign in again in another tab" in too_early.text
    assert gone_on.status_code == 302
    assert gone_on["Location"] == page
    assert client.get(page).status_code == 200


def test_another_account_in_the_same_browser_gets_forms_of_its_own(provider) -> None:
    client = Client()
    secrets = []
    for name in ("olga", "pia", "pia"):
        person(provider, name, groups=["order-desk"])
        come_back(client, name)
        secrets.append(client.cookies["csrftoken"].value)

    assert secrets[0] != secrets[1] == secrets[2]


@pytest.mark.parametrize("said", [True, "yesterday", None, 4_000_000_000])
def test_a_time_at_which_no_one_can_have_been_asked_counts_as_now(client, provider, said) -> None:
    person(provider, "olga", groups=["order-desk"], auth_time=said)

    come_back(client, "olga")

    assert 0 <= time.time() - client.session["proved"][0] < 60


def test_a_forged_answer_a_repeated_one_and_a_provider_that_is_away_sign_no_one_in(client, provider, settings) -> None:
    person(provider, "olga", groups=["order-desk"])
    away = client.get(BEGIN)
    answer = httpx2.post(away["Location"], data={"sub": "olga", "action": "authorize"}, follow_redirects=False, verify=TLS)
    back = urlsplit(answer.headers["Location"])
    stolen = Client().get(f"{back.path}?{back.query}")
    assert client.get(f"{back.path}?{back.query}").status_code == 302
    again = Client().get(f"{back.path}?{back.query}")
    app = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]
    app["settings"]["server_url"] = "http://127.0.0.1:9"

    gone = Client().get(BEGIN)

    assert (stolen.status_code, again.status_code, gone.status_code) == (403, 403, 502)
    assert "does not answer as it should" in gone.text
    assert "did not sign you in" in stolen.text


def test_a_token_with_another_signature_signs_no_one_in(client, provider, monkeypatch) -> None:
    person(provider, "olga", groups=["order-desk"])
    foreign = jwt.PyJWK.from_dict(RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2048).public_key(), as_dict=True) | {"alg": "RS256"})
    monkeypatch.setattr(jwt.PyJWKSet, "from_dict", lambda said: SimpleNamespace(keys=[foreign]))

    assert come_back(client, "olga").status_code == 502
    assert User.objects.count() == 0


@pytest.mark.parametrize(("behind", "status"), [(50, 302), (70, 502)])
def test_the_providers_clock_may_differ_by_a_minute(behind, status, client, provider, monkeypatch) -> None:
    person(provider, "olga", groups=["order-desk"])

    class Behind(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) - timedelta(seconds=behind)

    monkeypatch.setattr("jwt.api_jwt.datetime", Behind)

    assert come_back(client, "olga").status_code == status


def test_the_sign_in_page_names_the_provider_and_leads_nowhere_else(client, provider) -> None:
    person(provider, "olga", groups=["order-desk"])

    assert "Sign in with Example" in client.get("/admin/login/?next=/admin/").text
    assert come_back(client, "olga", "https://evil.example/")["Location"] == "/admin/"


def test_without_a_provider_there_is_no_way_to_one(client, settings) -> None:
    settings.SOCIALACCOUNT_PROVIDERS = {}

    assert client.get(BEGIN).status_code == 404
    assert "Sign in with a passkey" in client.get("/admin/login/").text
    assert "oidc" not in client.get("/admin/login/").text


def test_an_account_that_is_removed_while_it_comes_back_is_refused(client, provider, monkeypatch) -> None:
    person(provider, "ina", preferred_username="ina", groups=["order-desk"])
    account_of = openid._account

    def removed(*args: Any) -> Any:
        account = account_of(*args)
        User.objects.filter(pk=account.pk).delete()
        return account

    monkeypatch.setattr(openid, "_account", removed)

    assert come_back(client, "ina").status_code == 403
    assert "_auth_user_id" not in client.session
