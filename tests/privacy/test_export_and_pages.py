"""The export is complete and has no other person's data; the owner's page and the console's page do what the commands do."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from orders.models import Erasure, Order
from orders.privacy import erasing, people
from orders.services import cancel_order
from tests.orders.test_returns import shop
from tests.shopping import PASSWORD, an_account, place

from .kit import ADDRESS, CANARIES, EMAIL
from .test_erasing import lived, told, zoe

__all__ = ["shop", "zoe"]


def opened(content: bytes) -> tuple[dict, list[str]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return json.loads(archive.read("data.json")), archive.namelist()


def test_the_export_has_everything_and_no_other_persons_data(shop, zoe, tmp_path, capsys):
    lives = lived(shop, zoe)
    other = an_account("yann", "customer")
    place(other, email="yann@example.com", shipping_address={**ADDRESS, "name": "Yann Stranger"})
    place(other, email=EMAIL, shipping_address={**ADDRESS, "name": "Yann Stranger"})
    shop.run()
    told(shop)
    stopped = place(zoe, email=EMAIL, shipping_address=ADDRESS, payment_method="pm_card_chargeDeclined")
    shop.run()
    cancel_order(stopped, by=User.objects.get(username="olga"), reason="it takes too long")
    shop.run()
    waiting = place(zoe, email=EMAIL, shipping_address=ADDRESS)
    path = tmp_path / "zoe.zip"

    call_command("export_person", "--account", zoe.username, "--output", str(path))

    assert "5 orders" in capsys.readouterr().out
    assert path.stat().st_mode & 0o777 == 0o600
    data, names = opened(path.read_bytes())
    assert {one["id"] for one in data["orders"]} == {lives["own"], lives["guest"], lives["refused"], stopped, waiting}
    text = json.dumps(data, ensure_ascii=False).lower()
    assert [word for word in CANARIES if word not in text] == []
    assert [word for word in ("yann", "stranger", "olga", "too long", "locked_by") if word in text] == []
    own = next(one for one in data["orders"] if one["id"] == lives["own"])
    assert (len(own["returns"]), len(own["refunds"]), len(own["mails_sent_again"])) == (1, 1, 1)
    assert own["history"]
    assert len([name for name in names if name.endswith(".pdf")]) == sum(len(one["documents"]) for one in data["orders"]) > 2
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("export_person", "--account", zoe.username, "--output", str(path))
    call_command("export_person", "--email", EMAIL, "--order", lives["guest"], "--output", str(tmp_path / "one.zip"))
    one, _names = opened((tmp_path / "one.zip").read_bytes())
    assert [row["id"] for row in one["orders"]] == [lives["guest"]]
    strange = Order.objects.get(account=other, email="yann@example.com").public_id
    with pytest.raises(CommandError, match="no order of this person"):
        call_command("export_person", "--email", EMAIL, "--order", strange, "--output", str(tmp_path / "no.zip"))
    assert not (tmp_path / "no.zip").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--email", "nobody"], "Give a mail address"),
        (["--account", "no-one"], "no account no-one"),
        (["--account", "olga"], "no customer"),
    ],
)
def test_commands_say_what_is_wrong(shop, tmp_path, arguments, says):
    olga = an_account("olga", "operator")
    olga.is_staff = True
    olga.save()

    for command in (["erase_person", "--reason", "x"], ["export_person", "--output", str(tmp_path / "x.zip")]):
        with pytest.raises(CommandError, match=says):
            call_command(*command, *arguments)
    with pytest.raises(CommandError, match="--reason TEXT is needed"):
        call_command("erase_person", *arguments)


def test_an_owner_downloads_the_data_and_closes_the_account(shop, zoe):
    place(zoe, email=EMAIL, shipping_address=ADDRESS)
    zoe.set_password(PASSWORD)
    zoe.save()
    visitor = Client()
    visitor.force_login(zoe, backend="django.contrib.auth.backends.ModelBackend")
    page = visitor.get("/accounts/data/")
    assert "Close my account" in page.content.decode()
    assert visitor.post("/accounts/data/", {"close": "1", "password": "wrong"}).status_code == 400
    assert not Erasure.objects.exists()

    data, _names = opened(visitor.post("/accounts/data/", {"download": "1", "password": PASSWORD}).getvalue())
    assert data["accounts"][0]["email"] == EMAIL
    closed = visitor.post("/accounts/data/", {"close": "1", "password": PASSWORD})

    assert closed.status_code == 200
    assert Erasure.objects.get().subject["emails"] == [EMAIL.lower()]
    assert visitor.get("/accounts/data/").status_code == 302
    zoe.refresh_from_db()
    assert not zoe.is_active
    erasing.turn()
    assert Erasure.objects.get().waits == 1


def test_the_consoles_page_shows_the_plan_and_each_right_counts_by_itself(shop, zoe):
    place(zoe, email=EMAIL, shipping_address=ADDRESS)
    shop.run()
    told(shop)
    at, asked = "/admin/orders/erasure/person/", {"email": EMAIL, "reason": "by letter", "when_ended": "on"}
    clients = {}
    for name, rights in {"none": [], "exports": ["export_person"], "erases": ["erase_person"]}.items():
        account = an_account(name, "viewer")
        account.is_staff = True
        account.save()
        account.user_permissions.set(Permission.objects.filter(codename__in=rights))
        clients[name] = Client()
        clients[name].force_login(account, backend="django.contrib.auth.backends.ModelBackend")
    assert clients["none"].get(at).status_code == 403
    planned = clients["exports"].post(at, {**asked, "act": "plan"}).content.decode()
    assert 'value="export"' in planned
    assert 'value="erase"' not in planned
    assert clients["exports"].post(at, {**asked, "act": "erase"}).status_code == 403
    assert clients["erases"].post(at, {**asked, "act": "export"}).status_code == 403
    data, _names = opened(clients["exports"].post(at, {**asked, "act": "export"}).getvalue())
    assert data["emails"] == [EMAIL.lower()]
    assert clients["erases"].post(at, {**asked, "reason": "", "act": "erase"}).status_code == 400
    assert not Erasure.objects.exists()

    assert clients["erases"].post(at, {**asked, "act": "erase"}).status_code == 302

    assert "at work" in clients["erases"].get("/admin/orders/erasure/").content.decode()
    assert people.by_email("x@example.com").accounts == []
