"""Jobs in the console: a list, a page with progress and results, and the forms that stop a job or let it go on."""

from __future__ import annotations

import pytest
from django.test import Client

from supervision.jobs import steering
from supervision.models import Job
from supervision.operations import operator_verbs
from tests.support.console import ATTACK, fail, finish, state

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]
JOBS = "/admin/supervision/job/"


def a_job(reason: str = "the bank is back") -> Job:
    return steering.start("resubmit", {"error_code": "refused"}, by="command (olga)", reason=reason)


def page(client: Client, job: Job, query: str = "") -> str:
    return client.get(f"{JOBS}{job.pk}/change/{query}").content.decode()


def test_the_list_says_how_far_each_job_is(operator: Client, viewer: Client):
    assert "No job has been started" in viewer.get(JOBS).content.decode()
    fail(2)
    job = a_job()

    html = operator.get(JOBS).content.decode()

    assert f"{job.pk}: Resubmit" in html
    assert "0 of 2, 0 not done" in html
    assert "Error code: refused" in html


def test_the_page_shows_progress_and_a_result_for_each_order(operator: Client):
    done, changed = fail(2)
    job = a_job()
    assert 'hx-trigger="every 2s"' in page(operator, job)
    operator_verbs.skip(changed.public_id, by="another", reason="paid in cash")
    finish()

    html = page(operator, job)

    assert 'hx-trigger="every 2s"' not in html
    assert '<progress max="2" value="2"' in html
    assert done.public_id in html
    assert changed.public_id in html
    assert "changed meanwhile" in html
    only = page(operator, job, "?outcome=changed")
    assert changed.public_id in only
    assert done.public_id not in only
    assert "No order has such a result" in page(operator, job, "?outcome=again")


def test_a_job_is_stopped_and_let_go_on_with_a_reason(operator: Client):
    (order,) = fail()
    job = a_job()
    address = f"{JOBS}{job.pk}/change/"

    assert "This field is required" in operator.post(address, {"verb": "stop", "reason": ""}).content.decode()
    assert "The job is stopped" in operator.post(address, {"verb": "stop", "reason": "wait"}, follow=True).content.decode()
    finish()
    assert state(order) == "Error"
    assert "only a running one can be stopped" in operator.post(address, {"verb": "stop", "reason": "wait"}, follow=True).content.decode()

    assert "The job goes on" in operator.post(address, {"verb": "resume", "reason": "go on"}, follow=True).content.decode()
    finish()
    assert state(order) == "Processing"
    assert "<textarea" not in page(operator, job)


def test_a_stopped_job_is_ended(operator: Client):
    (order,) = fail()
    job = a_job()
    address = f"{JOBS}{job.pk}/change/"
    assert 'value="end"' not in page(operator, job)
    operator.post(address, {"verb": "stop", "reason": "wait"})
    assert 'value="end"' in page(operator, job)

    assert "The job is ended" in operator.post(address, {"verb": "end", "reason": "by hand"}, follow=True).content.decode()

    finish()
    job.refresh_from_db()
    assert (job.state, job.failed, state(order)) == ("done", 1, "Error")
    assert "<textarea" not in page(operator, job)


def test_a_viewer_sees_a_job_and_cannot_act(viewer: Client, client: Client):
    fail()
    job = a_job()

    assert "Stop the job" not in page(viewer, job)
    assert viewer.post(f"{JOBS}{job.pk}/change/", {"verb": "stop", "reason": "r"}).status_code == 403
    assert client.get(JOBS).status_code == 302
    job.refresh_from_db()
    assert job.state == "running"


def test_texts_of_a_job_are_shown_as_texts(operator: Client):
    fail()
    job = a_job(reason=ATTACK.replace("\u2028", ""))

    html = page(operator, job)

    assert "<script>window.pwned" not in html
    assert "{{ 7|add:7 }}" in html


def test_a_jobs_numbers_and_conditions_are_written_for_people(operator: Client):
    job = Job.objects.create(
        verb="resubmit",
        filter={"incident": "7", "email": "ada@example.com"},
        total=15_000,
        position=1_425,
        done=1_425,
        started_by="olga",
        reason="x",
    )

    listed, page = operator.get("/admin/supervision/job/").content.decode(), operator.get(f"{JOBS}{job.pk}/change/").content.decode()

    assert "1,425 of 15,000, 0 not done" in listed
    assert "E-mail: ada@example.com, Incident: 7" in listed
    assert "E-mail: ada@example.com, Incident: 7" in page
