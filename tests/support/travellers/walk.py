"""What an operator of this project does, in a process of its own: `python -m tests.support.travellers.walk`."""

from __future__ import annotations

import os
import re
from io import StringIO
from typing import Any

import django
import pytest

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.support.travellers.settings"
django.setup()

from django.contrib.auth import get_user_model  # noqa: E402
from django.core.management import CommandError, call_command  # noqa: E402
from django.test import Client  # noqa: E402

import supervision  # noqa: E402
from supervision import testing  # noqa: E402
from supervision.desk import notes  # noqa: E402
from supervision.models import ApiRequest, Incident, Run  # noqa: E402
from supervision.requestlog import recording  # noqa: E402


def page(client: Client, path: str) -> str:
    """The text of a page that is there."""
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.status_code)
    return str(answer.content.decode())


def cancels(client: Client, eve: Any, olga: Any) -> None:
    """Cancel a run that is in Error and one that no consumer has taken up, at the engine's own API."""
    failed = supervision.submit("seat", {"name": "Ade"})
    testing.run_until_idle()
    early = supervision.submit("seat", {"name": "Ada"})
    client.force_login(eve)
    assert client.post(f"/api/orders/{early}/cancel/", {"reason": "no trip"}, "application/json").status_code == 403
    client.force_login(olga)
    for key in (failed, early):
        answer = client.post(f"/api/orders/{key}/cancel/", {"reason": "no trip"}, "application/json")
        assert (answer.status_code, answer.headers["Location"]) == (202, f"/api/orders/{key}/"), answer.content
    testing.run_until_idle()
    assert {Run.objects.get(key=key).process_state for key in (failed, early)} == {"Cancelled"}
    assert client.post(f"/api/orders/{early}/cancel/", {"reason": "again"}, "application/json").status_code == 409
    assert client.post("/api/orders/an-unknown-public-id/cancel/", {"reason": "no"}, "application/json").status_code == 404


def main() -> None:
    """Fail a run, look at it, give it to an operator, resubmit it with a corrected name."""
    call_command("migrate", verbosity=0)
    call_command("check")
    accounts: Any = get_user_model().objects
    olga = accounts.create_user("olga@example.com", is_staff=True, is_superuser=True)
    eve = accounts.create_user("eve@example.com")
    accounts.create_user("left@example.com", is_superuser=True, is_active=False)
    key = supervision.submit("seat", {"name": "Ade"}, client=f"user:{olga.pk}")
    testing.run_until_idle()
    run = Run.objects.get(key=key)
    assert run.process_state == "Error"
    client = Client(SERVER_NAME="localhost")
    client.force_login(olga)

    assert "no such traveller" in page(client, f"/desk/supervision/run/{run.pk}/change/")
    testing.run_until_idle()
    for incident in Incident.objects.all():
        page(client, f"/desk/supervision/incident/{incident.pk}/change/")
    assert notes.operators() == ["olga@example.com"]
    assert notes.assign(key, "olga@example.com", by=olga)
    address = f"/desk/supervision/run/{run.pk}/operate/resubmit/"
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page(client, address)))
    assert client.post(address, hidden | {"reason": "misspelt", "amend-name": "Ada"}).status_code == 302
    testing.run_until_idle()
    assert Run.objects.get(key=key).process_state == "Processed"

    cancels(client, eve, olga)
    assert client.post(f"/api/orders/{key}/resubmit/", {"reason": "again"}, "application/json").status_code == 409
    recording._recorder.write()
    kept = ApiRequest.objects.order_by("pk").values_list("status", "account_id", "signed_in")
    assert list(kept) == [(status, None, "session") for status in (403, 202, 202, 409, 404, 409)]
    assert "/api/orders/" in page(client, "/desk/supervision/apirequest/")
    call_command("broker_users", "--producer", "olga@example.com", "--vhost", "/", stdout=StringIO(), stderr=StringIO())
    with pytest.raises(CommandError, match="is no client's account"):
        call_command("broker_users", "--producer", "eve@example.com", "--vhost", "/", stdout=StringIO(), stderr=StringIO())
    print("walked")


if __name__ == "__main__":
    main()
