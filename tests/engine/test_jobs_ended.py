"""A stopped bulk job that is not to go on is ended: no operator is asked about it any more."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User

from supervision.errors import ChangedMeanwhile
from supervision.insight import directory
from supervision.jobs import steering, working
from supervision.models import JobResult
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


def test_a_job_that_stopped_by_itself_is_ended_and_leaves_the_other_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_used", [directory.Directory()])
    monkeypatch.setattr(working, "BATCH", 2)
    olga = User.objects.create_user("olga")
    olga.user_permissions.add(Permission.objects.get(content_type__app_label="supervision", codename="operate"))
    keys = [kit.in_error(0) for _ in range(3)]
    job = steering.start("resubmit", {"process_state": "Error"}, by=olga, reason="the service is back")
    working._batch(working._take())  # type: ignore[arg-type]
    with pytest.raises(ChangedMeanwhile, match="only a stopped one"):
        steering.end(job.pk, by="otto", reason="still running")
    olga.user_permissions.clear()
    working.turn(rest=0.0)
    assert f"job_stopped:{job.pk}" in kit.incidents()

    steering.end(job.pk, by="otto", reason="these are settled by hand")

    job.refresh_from_db()
    assert (job.state, job.position, job.done, job.failed, job.stopped_by) == ("done", 3, 2, 1, "otto")
    results = JobResult.objects.filter(job=job).order_by("number").values_list("outcome", "message")
    assert list(results) == [("done", ""), ("done", ""), ("refused", "The job was ended before its turn: these are settled by hand")]
    assert f"job_stopped:{job.pk}" not in kit.incidents()
    with pytest.raises(ChangedMeanwhile):
        steering.resume(job.pk, by="otto", reason="too late")
    assert [kit.state(key) for key in keys] == ["Processing"] * 2 + ["Error"]
    assert kit.healthy()
