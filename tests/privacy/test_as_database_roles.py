"""The commands about persons under the database's roles: `web` begins an erasure, `worker` goes on with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import connection
from django_celery_beat.models import PeriodicTask

from orders import tasks
from orders.models import Erasure, Order
from orders.privacy import people
from tests.shopping import an_account

PREFIX = "tried"
A_RUN = """
INSERT INTO supervision_run (workflow, version, key, payload, process_state, finished_at)
VALUES ('fulfil-order', 1, %s, '{}', 'Cancelled', now()) RETURNING id
"""
ZOE = "zoe@canary.example"  # the username, as the sign-up makes it
pytestmark = pytest.mark.django_db  # the roles are rolled back with the rest


@contextmanager
def connected_as(role: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"SET ROLE {PREFIX}_{role}")
        try:
            yield
        finally:
            cursor.execute("RESET ROLE")


@pytest.fixture
def accounts(db: None) -> list[User]:
    """Two customers under the database's roles. They have no mail address, so no last mail has to leave before the work goes on."""
    call_command("database_roles", "--apply", "--prefix", PREFIX, stdout=StringIO())
    found = [an_account(name, "customer") for name in (ZOE, "zed@canary.example")]
    User.objects.filter(pk__in=[account.pk for account in found]).update(email="")
    return found


def said(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out, stderr=out)
    return out.getvalue()


def test_web_begins_an_erasure_and_the_supervisors_role_ends_it(accounts):
    with connected_as("web"):
        assert said("erase_person", "--account", ZOE, "--reason", "asked for").strip().endswith("; the supervisor's role does the rest")
    erasure = Erasure.objects.get()
    with connected_as("worker"):
        tasks.erase_persons()
    erasure.refresh_from_db()
    assert erasure.state == Erasure.State.DONE


def restored(accounts: list[User], tmp_path: Path) -> str:
    """The accounts have each an order again; the list of their hashes."""
    for number, account in enumerate(accounts):
        key = f"order-{number}"
        with connection.cursor() as cursor:
            cursor.execute(A_RUN, [key])
            [(run,)] = cursor.fetchall()
        Order.objects.create(public_id=key, number=key, run_id=run, account=account, email=account.username, total=9, currency="EUR")
    (listed := tmp_path / "erased.txt").write_text("\n".join(people.digest(f"account:{account.pk}") for account in accounts))
    return str(listed)


def test_the_supervisor_goes_on_with_erasures_every_minute(db: None):
    migration = import_module("orders.migrations.0036_erasure")
    migration.create_periodic_task(apps, None)
    task = PeriodicTask.objects.get(name=migration.TASK)

    assert (task.task, task.queue, task.interval.every, task.interval.period) == (tasks.erase_persons.name, "supervisor", 60, "seconds")
    migration.remove_periodic_task(apps, None)
    assert not PeriodicTask.objects.filter(name=migration.TASK).exists()


def test_web_begins_every_erasure_of_the_list_after_a_restore(accounts, tmp_path):
    listed = restored(accounts, tmp_path)
    with connected_as("web"):
        said("erase_person", "--again", listed, "--reason", "restored")
    assert Erasure.objects.count() == len(accounts)


@pytest.mark.parametrize("known_by", ["mail address", "account"])
@pytest.mark.parametrize("now", ["staff", "a shop's server"])
def test_who_of_the_list_is_no_customer_now_is_named_and_the_others_are_erased(accounts, tmp_path, known_by, now):
    hired, other = accounts
    if known_by == "mail address":
        listed = restored([], tmp_path)
        for account in accounts:
            User.objects.filter(pk=account.pk).update(email=account.username)
        Path(listed).write_text("\n".join(people.digest(account.username) for account in accounts))
    else:
        listed = restored(accounts, tmp_path)
    if now == "staff":
        User.objects.filter(pk=hired.pk).update(is_staff=True)
    else:
        hired.groups.set(Group.objects.filter(name="client"))
    named = f"not erased, because these accounts are no customers': {hired.username}. Take away their rights, and repeat the command"
    for last in (["--dry-run"], ["--reason", "restored"]):
        with connected_as("web"), pytest.raises(CommandError, match=f"^{named}$"):
            said("erase_person", "--again", listed, *last)
        assert Erasure.objects.count() == (0 if "--dry-run" in last else 1)

    assert not User.objects.filter(username=other.username).exists()
    hired.refresh_from_db()
    assert hired.is_active


@pytest.mark.parametrize(
    ("arguments", "lacks"),
    [
        (("erase_person", "--account", ZOE, "--reason", "asked for"), "close accounts"),
        (("export_person", "--account", ZOE, "--output", "PATH"), "read accounts"),
    ],
)
def test_the_workers_role_is_refused_in_one_line_that_says_which_role_may(accounts, tmp_path, arguments, lacks):
    named = [str(tmp_path / "zoe.zip") if each == "PATH" else each for each in arguments]
    with (
        connected_as("worker"),
        pytest.raises(CommandError, match=f"^this database role may not {lacks}: use that of web, or the owner$"),
    ):
        said(*named)
    assert not Erasure.objects.exists()
    assert not list(tmp_path.iterdir())
