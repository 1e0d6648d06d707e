"""A form that starts a bulk job starts one, however often it is sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection

from supervision.insight import directory
from supervision.jobs import selection, steering
from supervision.models import Job, JobResult
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")
FAILED = {"process_state": "Error"}


def test_a_form_that_is_sent_twice_at_the_same_moment_starts_one_job(monkeypatch):
    monkeypatch.setattr(directory, "_used", [directory.Directory()])
    olga = User.objects.create_user("olga")
    olga.user_permissions.add(Permission.objects.get(content_type__app_label="supervision", codename="operate"))
    keys = [kit.in_error(0) for _ in range(3)]
    chosen = selection.by_filter(FAILED)

    def send(_number: int) -> int:
        try:
            return steering.start_found("resubmit", chosen, FAILED, by=olga, reason="the service is back", token="t1").pk
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        started = set(pool.map(send, range(4)))

    assert started == {Job.objects.get().pk}
    assert JobResult.objects.count() == 3
    other = steering.start_chosen("cancel", [selection.Seen(keys[0])], by=olga, reason="gone", token="t1")
    assert other.pk not in started, "another verb"
