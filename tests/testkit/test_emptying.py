"""What is left after a test with real commits: exactly the rows that Django's flush leaves."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import TransactionTestCase
from django_celery_beat.models import PeriodicTask

from orders.models import Order
from supervision import testing
from supervision.models import Resource, Run
from tests.shopping import a_product, place
from tests.support import emptying


class Case(TransactionTestCase):
    databases = {"default"}


def rows() -> dict[str, list[str]]:
    found = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.django_table_names(only_existing=True, include_views=False):
            cursor.execute(f"SELECT t::text FROM {table} t ORDER BY 1")  # noqa: S608 - the names come from the models
            found[table] = [row for (row,) in cursor.fetchall()]
    return found


def test_new_rows_go_and_changed_or_deleted_rows_are_as_after_a_flush(transactional_db, monkeypatch):
    monkeypatch.setattr(emptying, "_usual", {})
    emptying.empty_as_flush_does(Case())
    flushed = rows()
    with testing.quiet():
        a_product()
        place()
        testing.schedule()
    User.objects.create_user("olga").groups.add(Group.objects.first())
    Group.objects.create(name="strangers")
    Group.objects.order_by("pk")[1].delete()
    Permission.objects.filter(codename="add_user").update(name="Can do more")
    PeriodicTask.objects.all().delete()
    Resource.objects.all().delete()
    ContentType.objects.create(app_label="tests", model="toy")
    assert Order.objects.exists()
    assert Run.objects.exists()
    changed = rows()
    assert sum(changed[table] != flushed[table] for table in changed) > 9
    emptying.empty_as_flush_does(Case())
    assert rows() == flushed
    testing.clean()


def test_a_database_whose_user_may_not_leave_triggers_out_is_flushed_each_time(transactional_db, monkeypatch):
    monkeypatch.setattr(emptying, "_usual", {})
    monkeypatch.setattr(emptying, "_may_leave_triggers_out", lambda one: False)
    for _ in range(2):
        Group.objects.create(name="strangers")
        emptying.empty_as_flush_does(Case())
        assert not Group.objects.filter(name="strangers").exists()
    assert emptying._usual == {}


@pytest.mark.parametrize("name", ["first", "second"])
def test_ids_that_this_process_remembers_of_content_types_are_right(transactional_db, name):
    mine = ContentType.objects.get_for_model(User)
    assert ContentType.objects.get(app_label="auth", model="user").pk == mine.pk
    ContentType.objects.create(app_label="tests", model=name)
