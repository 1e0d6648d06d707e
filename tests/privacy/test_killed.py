"""An erasure whose process is killed at any commit ends all the same, and two at once do no harm. Real processes on committed rows."""

from __future__ import annotations

import os
import subprocess
import sys

from django.db import connection

from orders.models import Erasure
from orders.privacy import erasing, people
from supervision.outbox import notifications
from tests.approvals.test_deciding import database_url
from tests.orders.test_returns import shop
from tests.shopping import place
from tests.support.shop import until

from .kit import ADDRESS, EMAIL, hits
from .test_erasing import KEPT, told, zoe

__all__ = ["shop", "zoe"]


CODE = """
import sys, django
django.setup()
from django.core.management import call_command
from supervision.runtime import failpoints
failpoints.load()
call_command(*sys.argv[1:])
"""


def command(*arguments: str, **variables: str) -> subprocess.Popen[str]:
    """`manage.py` with these arguments, which its failpoints may kill."""
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "sasproject.settings", "DEBUG": "1", **variables}
    env["DATABASE_URL"] = database_url(connection.settings_dict["NAME"])
    words = [sys.executable, "-c", CODE, *arguments]
    return subprocess.Popen(words, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def bought(shop, zoe) -> None:
    for _ in range(3):
        place(zoe, email=EMAIL, shipping_address=ADDRESS)
    shop.run()
    told(shop)


def test_a_killed_erasure_goes_on_where_it_was(shop, zoe):
    bought(shop, zoe)
    erasure = erasing.begin(people.by_account(zoe.username), by="olga", reason="asked")
    notifications.deliver_due()
    told_of = ["erase_person", "--account", zoe.username, "--reason", "asked"]
    for kill_at in (1, 2, 3):
        process = command(*told_of, FAILPOINTS=f"erasure.before_commit=kill9@{kill_at}", ALLOW_FAILPOINTS="1")
        output, _ = process.communicate(timeout=120)
        assert process.returncode == -9, output
        assert Erasure.objects.get().done_at is None

    def is_done() -> bool:
        """The server may keep the killed process's lock for a moment; a turn leaves a locked erasure to the next one."""
        erasing.turn()
        erasure.refresh_from_db()
        return erasure.state == "done"

    until(is_done, within=60, what="the erasure to be done")
    assert hits().keys() <= KEPT, hits()


def test_two_at_once_do_no_harm(shop, zoe):
    bought(shop, zoe)
    told_of = ["--reason", "asked", "--json"]
    two = [
        command("erase_person", "--account", zoe.username, *told_of),
        command("erase_person", "--email", EMAIL, *told_of),
    ]
    outputs = [process.communicate(timeout=120)[0] for process in two]
    assert [process.returncode for process in two] == [0, 0], outputs

    notifications.deliver_due()
    erasing.turn()

    assert Erasure.objects.get().state == "done"
    assert hits().keys() <= KEPT, hits()
