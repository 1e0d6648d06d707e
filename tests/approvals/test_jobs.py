"""A bulk job on more money than the limit, all its orders taken together, waits for another operator's approval."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from supervision.approvals import deciding
from supervision.errors import AwaitsApproval, NotPermitted, Refused
from supervision.jobs import selection, steering
from supervision.models import Approval, Job, JobResult, StepEvent, StepState
from supervision.operations import operator_verbs
from tests.shopping import a_client
from tests.support import console

pytestmark = pytest.mark.usefixtures("shop")
WHY = "the bank lost them"


@pytest.fixture
def limit(tuned: Any) -> None:
    """Above one order of 25.80 EUR and below two: each order alone would pass."""
    tuned(APPROVAL_ABOVE={"": "30"})


def start(olga: User, verb: str = "skip", **given: str) -> Job:
    return steering.start(verb, given or {"process_state": "Error"}, by=olga, reason=WHY)


def states(orders: list[Any]) -> set[str]:
    return {console.state(order) for order in orders}


def outcomes() -> set[str]:
    return set(JobResult.objects.values_list("outcome", flat=True))


@pytest.mark.usefixtures("limit")
def test_orders_that_would_pass_one_by_one_wait_together(olga: User, bob: User):
    orders = console.fail(2)

    job = start(olga)
    console.finish()

    asked = Approval.objects.get()
    assert (job.state, job.approval, job.stopped_by) == ("stopped", asked.pk, "olga")
    assert (asked.verb, asked.arguments, asked.stake, asked.asked_by) == ("job", {"verb": "skip"}, [["51.60", "EUR"]], "olga")
    assert str(asked.pk) in job.stop_reason
    assert states(orders) == {"Error"}
    assert outcomes() == {"waiting"}

    deciding.approve(asked.pk, by=bob, reason="seen")
    console.finish()

    job.refresh_from_db()
    assert (job.state, job.done, job.failed) == ("done", 2, 0)
    assert states(orders) == {"Processing"}
    assert Approval.objects.count() == 1


def test_orders_above_the_limit_do_not_ask_again_once_the_job_is_approved(olga: User, bob: User):
    first, second, other = console.fail(3)  # each is above 20
    steering.start_chosen("skip", [selection.Seen(one.public_id, 1) for one in (first, second)], by=olga, reason=WHY)

    deciding.approve(Approval.objects.get().pk, by=bob, reason="seen")
    console.finish()

    assert outcomes() == {"done"}
    with pytest.raises(AwaitsApproval):  # outside the job the limit holds as before
        operator_verbs.skip(other.public_id, by=olga, reason=WHY)


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize(
    ("ended", "words"),
    [("pending", "has to approve request"), ("refused", "cannot be any more. Start another job"), ("expired", "Start another job")],
)
def test_a_job_that_is_not_approved_cannot_be_resumed(olga: User, bob: User, ended: str, words: str):
    orders = console.fail(2)
    job = start(olga)
    if ended == "refused":
        deciding.refuse(job.approval or 0, by=bob, reason="no")
    elif ended == "expired":
        Approval.objects.update(expires_at="2026-01-01T00:00:00Z")

    with pytest.raises(Refused, match=words) as refused:
        steering.resume(job.pk, by=bob, reason="go on")
    console.finish()

    assert refused.value.code == "not_approved"
    assert states(orders) == {"Error"}


@pytest.mark.usefixtures("limit")
def test_an_approved_job_may_be_stopped_and_resumed(olga: User, bob: User):
    orders = console.fail(2)
    job = start(olga)
    deciding.approve(job.approval or 0, by=bob, reason="seen")

    steering.stop(job.pk, by=olga, reason="wait")
    console.finish()
    assert states(orders) == {"Error"}
    steering.resume(job.pk, by=olga, reason="go on")
    console.finish()

    assert states(orders) == {"Processing"}


def charged_meanwhile(orders: list[Any]) -> None:
    """It is not known any more whether these orders were charged: to cancel them may pay money back."""
    StepState.objects.filter(run__key__in=[order.public_id for order in orders], name="charge-payment").update(effect="unknown")


def test_a_running_job_stops_before_it_moves_more_together_than_needs_no_approval(olga: User, bob: User, tuned: Any):
    tuned(APPROVAL_ABOVE={"": "30"})
    orders = console.fail(3)
    job = start(olga, "cancel")
    assert (job.state, job.approval) == ("running", None)
    charged_meanwhile(orders)

    console.finish()

    job.refresh_from_db()
    assert (job.state, job.position, job.moved) == ("stopped", 1, [["25.80", "EUR"]])
    assert "51.60 EUR" in job.stop_reason
    assert sorted(JobResult.objects.values_list("outcome", flat=True)) == ["done", "waiting", "waiting"]

    with pytest.raises(AwaitsApproval):
        steering.resume(job.pk, by=olga, reason="go on")
    console.finish()
    assert JobResult.objects.filter(outcome="done").count() == 1
    request = Approval.objects.get()
    assert request.stake == [["77.40", "EUR"]]  # all that the job moves, with what it has moved

    deciding.approve(request.pk, by=bob, reason="seen")
    console.finish()
    assert outcomes() == {"done"}
    assert Job.objects.get().moved == [["77.40", "EUR"]]


def test_what_a_verb_that_failed_would_have_moved_does_not_count(olga: User, tuned: Any, monkeypatch: pytest.MonkeyPatch):
    tuned(APPROVAL_ABOVE={"": "30"})
    orders = console.fail(2)
    job = start(olga, "cancel")
    charged_meanwhile(orders)
    undo, tries = operator_verbs._undo, list[str]()

    def failing_once(locked: Any, *args: Any, **fields: Any) -> None:
        tries.append(locked.run.key)
        if len(tries) == 1:
            raise RuntimeError("a fault of ours")
        undo(locked, *args, **fields)

    monkeypatch.setattr(operator_verbs, "_undo", failing_once)
    console.finish()

    job.refresh_from_db()
    assert (job.state, job.moved, outcomes()) == ("done", [["25.80", "EUR"]], {"failed", "done"})


def test_an_approved_job_whose_limit_was_raised_meanwhile_goes_on(olga: User, bob: User, tuned: Any):
    tuned(APPROVAL_ABOVE={"": "20"})
    small, late = console.fail(2)
    charged_meanwhile([small])
    job = start(olga, "cancel")
    deciding.approve(job.approval or 0, by=bob, reason="25.80 is fine")
    charged_meanwhile([late])
    tuned(APPROVAL_ABOVE={"": "100"})

    console.finish()

    assert outcomes() == {"done"}


def test_a_job_that_was_approved_for_little_moves_no_more(olga: User, bob: User, tuned: Any):
    tuned(APPROVAL_ABOVE={"": "20"})
    small, late = console.fail(2)
    charged_meanwhile([small])
    job = start(olga, "cancel")
    deciding.approve(job.approval or 0, by=bob, reason="25.80 is fine")
    steering.stop(job.pk, by=olga, reason="not yet")
    charged_meanwhile([late])

    with pytest.raises(AwaitsApproval):
        steering.resume(job.pk, by=olga, reason="now")
    console.finish()
    assert outcomes() == {"waiting"}

    deciding.approve(Approval.objects.latest("pk").pk, by=bob, reason="both, then")
    console.finish()
    assert outcomes() == {"done"}


def test_a_job_that_is_resumed_under_an_approval_acts_for_the_operator_who_resumed_it(olga: User, bob: User, tuned: Any):
    tuned(APPROVAL_ABOVE={})
    console.fail(2)
    job = start(olga)
    steering.stop(job.pk, by=olga, reason="wait")
    tuned(APPROVAL_ABOVE={"": "30"})
    dora = console.person("dora", "operator")

    with pytest.raises(AwaitsApproval) as waits:
        steering.resume(job.pk, by=dora, reason="go on")
    deciding.approve(waits.value.approval, by=bob, reason="seen")
    console.finish()

    job.refresh_from_db()
    assert (job.state, job.started_by, outcomes()) == ("done", "dora", {"done"})
    assert set(StepEvent.objects.filter(to_state="Skipped").values_list("actor", flat=True)) == {"dora"}


@pytest.mark.usefixtures("limit")
def test_the_asker_cannot_approve_and_who_may_not_do_the_verb_cannot_either(olga: User):
    console.fail(2)
    job = start(olga)
    vera = console.person("vera", "viewer")

    for who in (olga, vera):
        with pytest.raises(Refused) as refused:
            deciding.approve(job.approval or 0, by=who, reason="seen")
        assert refused.value.code in ("same_operator", NotPermitted.code)

    assert Job.objects.get().state == "stopped"


@pytest.mark.usefixtures("limit")
def test_who_may_not_do_the_verb_at_every_agent_of_a_job_does_not_approve_it(olga: User):
    console.fail(2)
    job = start(olga, "skip")
    carla = console.person("carla", "viewer")
    carla.user_permissions.set(Permission.objects.filter(codename__in=["approve_verb", "skip_run_at_stock"]))

    with pytest.raises(NotPermitted):
        deciding.approve(job.approval or 0, by=User.objects.get(pk=carla.pk), reason="seen")

    assert Job.objects.get().state == "stopped"


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize(
    ("verb", "at", "waits"),
    [
        ("resubmit", "charge-payment", False),  # under the same keys: no money moves
        ("skip", "book-shipment", False),  # no payment is skipped
        ("skip", "charge-payment", True),
        ("cancel", "charge-payment", False),  # nothing was paid
        ("cancel", "book-shipment", True),  # what was paid is paid back
        ("compensate", "book-shipment", True),
    ],
)
def test_only_a_verb_that_moves_or_forgoes_money_waits(olga: User, verb: str, at: str, waits: bool):
    console.fail(2, at=at)

    job = start(olga, verb)

    assert (job.approval is not None) == waits
    assert Approval.objects.exists() == waits


def test_one_order_below_the_limit_starts_at_once(olga: User, tuned: Any):
    tuned(APPROVAL_ABOVE={"": "30"})
    console.fail(1)

    assert start(olga).approval is None


@pytest.mark.usefixtures("limit")
def test_console_and_api_say_that_the_job_waits(olga: User):
    console.fail(2)
    browser = Client()
    browser.force_login(olga)
    address = "/admin/orders/order/bulk/skip/?process_state=Error"

    shown = console.hidden(browser.get(address).content.decode())
    html = browser.post(address, {**shown, "reason": WHY}, follow=True).content.decode()
    said = a_client(olga).post("/api/v1/jobs/", {"verb": "skip", "filter": {"process_state": "Error"}, "reason": WHY}, format="json").json()

    first, second = Approval.objects.order_by("pk")
    assert f"Another operator has to approve request {first.pk}" in html
    assert (said["state"], said["approval"]) == ("stopped", second.pk)
