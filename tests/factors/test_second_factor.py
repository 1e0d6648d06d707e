"""Who enters the console has passed a second factor; a session that has not has no rights anywhere."""

from __future__ import annotations

import re
import time

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import Resolver404, get_resolver, resolve, reverse

from orders.factors import codes
from orders.identity import tokens
from sasproject.factors import OIDC_PROVIDER
from tests.factors.conftest import PASSWORD, SECRET, code, sign_in
from tests.support import console_pages

pytestmark = pytest.mark.django_db
ASK = "/admin/second-factor/"


@pytest.fixture(autouse=True)
def _required(settings) -> None:
    settings.CONSOLE_SECOND_FACTOR = "required"


def enter(client: Client, given: str):
    return client.post(ASK, {"code": given, "next": "/admin/auth/user/"})


def test_the_password_alone_opens_no_page_of_the_console(client, ops) -> None:
    assert sign_in(client).status_code == 302

    addresses = sorted({console_pages.ROOT + _filled(written) for written, _name in console_pages.patterns(admin.site.get_urls())})
    open_ones = {"/admin/login/", "/admin/logout/"}
    answers = {address: client.get(address) for address in addresses if address not in open_ones}

    assert len(answers) > 100
    assert {address: answer.status_code for address, answer in answers.items() if answer.status_code != 302} == {}
    assert {answer["Location"].partition("?")[0] for answer in answers.values()} == {ASK}
    assert {client.post(address)["Location"].partition("?")[0] for address in answers} == {ASK}
    assert "/admin/orders/order/" in answers


def _filled(written: str) -> str:
    written = re.sub(r"^\^\(\?P<app_label>([\w]+).*", r"\1/", written)
    return re.sub(r"<[^>]*>", "1", written).replace("(?P1.*)$", "anything")


def test_the_password_alone_opens_nothing_of_the_own_account_that_makes_tokens(client, ops) -> None:
    sign_in(client)

    for address in ("/accounts/tokens/", "/accounts/", "/accounts/password_change/", "/accounts/email/"):
        assert client.get(address)["Location"].startswith(ASK), address
    made = client.post("/accounts/tokens/", {"name": "x", "scope": "operate", "days": 9, "password": PASSWORD})

    assert made.status_code == 302
    assert ops.auth_token_set.count() == 0


def test_the_api_refuses_a_session_that_is_signed_in_by_half_and_takes_a_whole_one(client, enrolled) -> None:
    sign_in(client)
    half = client.get("/api/v1/alerts/")
    enter(client, code())

    assert (half.status_code, half.json()["code"]) == (403, "second_factor_needed")
    assert client.get("/api/v1/alerts/").status_code == 200


def test_an_account_of_a_session_that_is_signed_in_by_half_has_no_right(client, enrolled) -> None:
    User.objects.update(is_superuser=True)
    sign_in(client)
    answer = client.get("/")
    account = answer.wsgi_request.user

    assert account.is_superuser
    assert not account.has_perm("supervision.operate")
    assert account.get_all_permissions() == set()
    assert User.objects.get().is_staff


@pytest.fixture(params=["cancel_run", "view_run"])
def clerk(request, db) -> User:
    """An account with this right, one by itself and one by a group, which does not enter the console."""
    account = User.objects.create_user("cleo", password=PASSWORD)
    right = Permission.objects.get(content_type__app_label="supervision", codename=request.param)
    if request.param == "view_run":
        account.groups.create(name="readers").permissions.add(right)
    else:
        account.user_permissions.add(right)
    return account


def test_who_has_rights_without_the_console_passes_a_second_factor_too(client, clerk, settings) -> None:
    client.post("/accounts/login/", {"username": "cleo", "password": PASSWORD})
    half = client.get("/api/v1/orders/")
    account = client.get("/").wsgi_request.user
    [right] = User.objects.get(pk=clerk.pk).get_all_permissions()

    assert (half.status_code, half.json()["code"]) == (403, "second_factor_needed")
    assert (account.has_perm(right), account.get_all_permissions()) == (False, set())
    asked = client.get("/accounts/tokens/")
    assert asked["Location"] == f"{ASK}?next=%2Faccounts%2Ftokens%2F"
    assert client.get(asked["Location"], follow=True).redirect_chain == [("/admin/second-factor/enrol/", 302)]
    secret = client.session["mfa.totp.secret"]
    enrolled = client.post("/admin/second-factor/enrol/", {"code": code(secret=secret)})
    assert (enrolled.status_code, 'href="/accounts/"' in enrolled.text) == (201, True)
    assert client.get("/api/v1/orders/").status_code == 200
    assert client.get("/").wsgi_request.user.has_perm(right)
    assert client.get("/accounts/tokens/").status_code == 200

    session = client.session
    session["proved"] = [session["proved"][0] - 901, True]
    session.save()
    for mode in ("required", "off"):
        settings.CONSOLE_SECOND_FACTOR = mode
        page = client.get(f"{ASK}own/")
        ways = re.findall(r'<p><a href="([^"]*)">', page.text)
        assert (page.status_code, ways) == (403, ["/accounts/"])

    settings.CONSOLE_SECOND_FACTOR = "required"
    client.post("/accounts/logout/")
    client.post("/accounts/login/", {"username": "cleo", "password": PASSWORD})
    again = client.post(ASK, {"code": code(1, secret)})
    assert (again.status_code, again["Location"]) == (302, "/accounts/")


def test_a_superuser_whom_the_console_refuses_is_led_to_the_own_page(client, db) -> None:
    User.objects.create_user("root", password=PASSWORD, is_superuser=True)
    client.post("/accounts/login/", {"username": "root", "password": PASSWORD})
    client.get(ASK, follow=True)

    enrolled = client.post("/admin/second-factor/enrol/", {"code": code(secret=client.session["mfa.totp.secret"])})

    assert (enrolled.status_code, 'href="/accounts/"' in enrolled.text) == (201, True)


def test_a_code_opens_the_console_once_and_the_session_gets_a_new_name(client, enrolled) -> None:
    sign_in(client)
    before = client.session.session_key
    now = code()
    answer = enter(client, now)
    thief = Client()
    sign_in(thief)

    assert (answer.status_code, answer["Location"]) == (302, "/admin/auth/user/")
    assert client.session.session_key != before
    assert client.get("/admin/").status_code == 200
    assert enter(thief, now).status_code == 400
    assert thief.get("/admin/").status_code == 302


def test_a_recovery_code_works_once(client, enrolled) -> None:
    for status in (302, 400):
        sign_in(other := Client())
        assert enter(other, enrolled[3]).status_code == status
    assert codes.left(User.objects.get()) == 9


def test_the_eleventh_wrong_code_is_not_looked_at_and_the_owners_browser_goes_on(client, enrolled) -> None:
    owner, stranger = Client(), Client(REMOTE_ADDR="192.0.2.1")
    sign_in(owner)
    assert enter(owner, code()).status_code == 302
    for number in range(10):
        sign_in(stranger := Client(REMOTE_ADDR=f"192.0.2.{number}"))  # each sign-in from another network, as another browser
        assert enter(stranger, "000000").status_code == 400

    stopped = enter(stranger, enrolled[0])
    owner.post("/admin/logout/")
    sign_in(owner)

    assert stopped.status_code == 429
    assert "Try again in 15 minutes" in stopped.text
    assert enter(owner, code(1)).status_code == 302


def test_who_has_no_second_factor_enrols_one_and_sees_the_recovery_codes(client, ops) -> None:
    sign_in(client)
    assert client.get(ASK, follow=True).redirect_chain[-1][0] == "/admin/second-factor/enrol/"
    page = client.get("/admin/second-factor/enrol/")
    secret = client.session["mfa.totp.secret"]
    wrong = client.post("/admin/second-factor/enrol/", {"code": "000000"})
    before = client.session.session_key
    given = auth.format_hotp_value(auth.hotp_value(secret, list(auth.yield_hotp_counters_from_time())[1]))
    done = client.post("/admin/second-factor/enrol/", {"code": given})

    assert secret in page.text
    assert (wrong.status_code, done.status_code) == (400, 201)
    assert len(re.findall(r"<code>\d{8}</code>", done.text)) == 10
    assert client.session.session_key != before
    assert client.get("/admin/").status_code == 200
    kept = Authenticator.objects.get(type="totp").data["secret"]
    assert secret not in kept


def test_who_has_a_second_factor_enrols_no_other_with_the_password_alone(client, enrolled) -> None:
    sign_in(client)

    for address in ("enrol/", "own/"):
        assert client.get(ASK + address)["Location"] == ASK
        assert client.post(ASK + address, {"code": code(), "new-codes": "1"})["Location"] == ASK
    assert Authenticator.objects.count() == 2


def test_the_only_second_factor_stays_where_one_is_required(client, enrolled, settings) -> None:
    sign_in(client)
    enter(client, code())
    pk = Authenticator.objects.get(type="totp").pk

    assert "Add another one first" in client.post(f"{ASK}own/", {"remove": pk}, follow=True).text
    settings.CONSOLE_SECOND_FACTOR = "optional"
    client.post(f"{ASK}own/", {"remove": pk})

    assert not Authenticator.objects.exists()


def test_an_old_session_proves_itself_before_it_changes_its_second_factors(client, enrolled) -> None:
    sign_in(client)
    enter(client, code())
    session = client.session
    session["proved"] = [session["proved"][0] - 901, True]
    session.save()

    for method in (client.get, client.post):
        asked = method(f"{ASK}own/", {"new-codes": "1"})
        assert (asked.status_code, "Is it still you?" in asked.text) == (403, True)
    back = client.post(f"{ASK}own/", {"proof-kind": "password", "proof-password": PASSWORD, "proof-back": "1", "new-codes": "1"})

    assert (back.status_code, back["Location"]) == (302, f"{ASK}own/")
    assert codes.left(User.objects.get()) == 10
    assert client.post(f"{ASK}own/", {"new-codes": "1"}).status_code == 201


def test_a_proof_of_a_machine_whose_clock_is_ahead_counts(client, enrolled) -> None:
    sign_in(client)
    enter(client, code())

    for ahead, status in ((50, 200), (90, 403)):
        session = client.session
        session["proved"] = [time.time() + ahead, True]
        session.save()
        assert client.get(f"{ASK}own/").status_code == status


@pytest.mark.parametrize(("mode", "status"), [("optional", 200), ("off", 200)])
def test_where_none_is_required_the_password_alone_is_enough(mode, status, client, ops, settings) -> None:
    settings.CONSOLE_SECOND_FACTOR = mode
    sign_in(client)

    assert client.get("/admin/").status_code == status


def test_who_has_enrolled_is_asked_where_it_is_optional(client, enrolled, settings) -> None:
    settings.CONSOLE_SECOND_FACTOR = "optional"
    sign_in(client)

    assert client.get("/admin/")["Location"].startswith(ASK)


def test_a_shopper_and_a_token_cost_no_query_more(client, ops, settings) -> None:
    User.objects.create_user("ada", password=PASSWORD)
    client.login(username="ada", password=PASSWORD)
    token = tokens.issue(ops, name="x", scope="operate", days=1)
    counts = []
    for mode in ("off", "required"):
        settings.CONSOLE_SECOND_FACTOR = mode
        with CaptureQueriesContext(connection) as seen:
            client.get("/cart/")
            Client().get("/")
            assert client.get("/api/v1/alerts/", headers={"Authorization": f"Token {token}"}).status_code == 200
        counts.append(len(seen))

    assert counts[0] == counts[1] > 0


def test_an_operator_who_lost_everything_is_let_in_again_by_a_command(client, enrolled, manage) -> None:
    other = Client()
    for one in (client, other):
        sign_in(one)
    User.objects.create_user("ada", password=PASSWORD)
    shopper = Client()
    shopper.login(username="ada", password=PASSWORD)

    with pytest.raises(CommandError, match="--reset needs --reason"):
        manage("second_factor", "ops", "--reset")
    said = manage("second_factor", "ops", "--reset", "--reason", "the telephone is lost", "--by", "olga")

    assert "1 second factors deleted, 2 sessions ended" in said.out
    assert not Authenticator.objects.exists()
    assert Session.objects.filter(session_key=shopper.session.session_key).exists()
    assert client.get("/admin/")["Location"].startswith("/admin/login/")
    assert LogEntry.objects.latest("pk").change_message == "second factors reset by olga: the telephone is lost"


def test_an_administrator_sees_who_has_enrolled(client, enrolled, settings) -> None:
    settings.CONSOLE_SECOND_FACTOR = "off"
    client.force_login(User.objects.create_superuser("root", password=PASSWORD))

    def found(value: str) -> list[tuple[str, bool]]:
        shown = client.get(f"/admin/auth/user/?second_factor={value}").context["cl"].result_list
        return [(one.username, one.enrolled) for one in shown]

    assert found("1") == [("ops", True)]
    assert found("0") == [("root", False)]


def test_the_library_opens_no_page_of_its_own() -> None:
    """Every address whose view or name is allauth's, or that leads to ours of second factors, is one of these."""
    found = sorted(written for written, name in console_pages.patterns(get_resolver().url_patterns) if _of_factors(written, name))

    assert found == sorted(
        ["admin/oidc/login/", "admin/oidc/login/callback/"]
        + [f"admin/second-factor/{rest}" for rest in ("", "own/", "enrol/", "passkey/", "passkey/options/")]
    )
    assert reverse("openid_connect_callback", kwargs={"provider_id": OIDC_PROVIDER}) == "/admin/oidc/login/callback/"


def _of_factors(written: str, name: str) -> bool:
    try:
        module = resolve("/" + re.sub(r"<[^>]*>", "1", written)).func.__module__
    except Resolver404:
        module = ""
    named = name.startswith(("account_", "socialaccount_", "mfa_", "openid_", "headless", "usersessions"))
    return named or module.startswith(("allauth", "orders.factors"))


def test_a_secret_that_cannot_be_read_any_more_is_no_right_code_and_no_traceback(client, enrolled, settings) -> None:
    sign_in(client)
    Authenticator.objects.filter(type="totp").update(data={"secret": "gAAAAAnothing"})

    assert enter(client, code()).status_code == 400
    assert SECRET not in str(list(Authenticator.objects.values("data")))
