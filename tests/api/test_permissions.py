"""Every role at every endpoint. A path without a row in the table fails, so a new endpoint needs a decision who may use it."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.db import transaction
from django.utils import timezone

from orders.api.urls import order_patterns, version_1
from orders.models import Refund, Return
from supervision.intake.consuming import consume_batch
from supervision.models import Alert, Approval, DeadLetter, Delivery, Incident, Job, Pause, Resource, Run, WebhookEndpoint
from tests.shopping import a_client, a_request, an_account

ROLES = ("anonymous", "groupless", "customer", "client", "viewer", "operator")
BODIES = {"payment": {"payment_method": "pm_card_visa"}, "orders": a_request(), "batch": {"orders": [a_request()]}}
OPEN, NO, AUTH, HIDDEN = "open", 403, 401, 404

# (verb, name of the path): the answer for each role, in the order of ROLES. The order in the path belongs to the customer.
DOORS = {
    ("get", "orders"): (AUTH, OPEN, OPEN, OPEN, OPEN, OPEN),
    ("post", "orders"): (AUTH, NO, OPEN, OPEN, NO, NO),
    ("post", "batch"): (AUTH, NO, NO, OPEN, NO, NO),
    ("get", "order"): (AUTH, HIDDEN, OPEN, HIDDEN, OPEN, OPEN),
    ("get", "events"): (AUTH, HIDDEN, OPEN, HIDDEN, OPEN, OPEN),
    ("post", "cancel"): (AUTH, HIDDEN, OPEN, HIDDEN, NO, OPEN),
    ("post", "payment"): (AUTH, HIDDEN, OPEN, HIDDEN, NO, OPEN),
    ("get", "returns"): (AUTH, HIDDEN, OPEN, HIDDEN, OPEN, OPEN),
    ("post", "returns"): (AUTH, HIDDEN, OPEN, HIDDEN, NO, OPEN),
    ("post", "lines"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "refunds"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("post", "refunds"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "return"): (AUTH, HIDDEN, OPEN, HIDDEN, OPEN, OPEN),
    ("post", "return-goods"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "return-payout"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "refund-payout"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "return-correction"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "return-correction-plan"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "failed-refunds"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("post", "failed-refunds"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "resubmit"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "compensate"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "abandon"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "skip"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "complete"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "move"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "resume-from"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "signal"): (AUTH, NO, NO, HIDDEN, NO, OPEN),
    ("get", "family"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("get", "notes"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("post", "notes"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "owner"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("put", "owner"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "plan"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "products"): (OPEN, OPEN, OPEN, OPEN, OPEN, OPEN),
    ("get", "alerts"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("post", "acknowledge"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "dead-letters"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("get", "dead-letter"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("post", "requeue"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "discard"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "queues"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("get", "webhooks"): (AUTH, NO, NO, OPEN, NO, NO),
    ("post", "webhooks"): (AUTH, NO, NO, OPEN, NO, NO),
    ("get", "webhook"): (AUTH, NO, NO, HIDDEN, NO, NO),
    ("delete", "webhook"): (AUTH, NO, NO, HIDDEN, NO, NO),
    ("post", "test-webhook"): (AUTH, NO, NO, HIDDEN, NO, NO),
    ("get", "reply-tokens"): (AUTH, NO, NO, OPEN, NO, NO),
    ("post", "reply-tokens"): (AUTH, NO, NO, OPEN, NO, NO),
    ("delete", "reply-token"): (AUTH, NO, NO, HIDDEN, NO, NO),
    ("get", "deliveries"): (AUTH, NO, NO, OPEN, OPEN, OPEN),
    ("get", "delivery"): (AUTH, NO, NO, HIDDEN, OPEN, OPEN),
    ("post", "redeliver"): (AUTH, NO, NO, HIDDEN, NO, OPEN),
    ("get", "resources"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("get", "resource"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("patch", "resource"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "incidents"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("get", "incident"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("post", "acknowledge-incident"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "incident-notes"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("post", "incident-notes"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "incident-owner"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("put", "incident-owner"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "jobs"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("post", "jobs"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "job"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("post", "stop-job"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "end-job"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "resume-job"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "approvals"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("get", "approval"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("post", "approve"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "refuse"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "pauses"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("post", "pauses"): (AUTH, NO, NO, NO, NO, OPEN),
    ("get", "lift"): (AUTH, NO, NO, NO, OPEN, OPEN),
    ("delete", "lift"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "pause"): (AUTH, NO, NO, NO, NO, OPEN),
    ("post", "resume"): (AUTH, NO, NO, NO, NO, OPEN),
}


LISTS = "orders products alerts approvals dead-letters incidents jobs queues resources pauses webhooks reply-tokens deliveries"


@pytest.fixture
def places(customer):
    """The path of each endpoint, with the ids of an order and of rows that exist."""
    public_id = customer.post("/api/v1/orders/", a_request()).json()["id"]
    consume_batch(born=False)
    alert = Alert.objects.create(run=Run.objects.get(), position=0, direction="do", generation=1, kind="error")
    letter = DeadLetter.objects.create(source="test", body=b"x", reason="y")
    Resource.objects.get_or_create(name="payment")
    held = Pause.objects.create(scope="agent", name="email", reason="r", paused_by="olga")
    hook = WebhookEndpoint.objects.create(public_id=f"wh_{'0' * 32}", client="user:0", url="https://shop.example/", secret="whsec_c2VjcmV0")
    sent = Delivery.objects.create(
        public_id=f"dlv_{'0' * 32}", client="user:0", endpoint=hook, run=Run.objects.get(), seq=1, event="order.received",
        body='{"data": {"order": "x"}}',
    )  # fmt: skip
    back = Return.objects.create(public_id="r" * 22, order_key=public_id, number="1-R1", currency="EUR")
    refund = Refund.objects.create(public_id="f" * 22, order_key=public_id, number="1-P1", currency="EUR", amount=1)
    incident = Incident.objects.create(kind="starvation", cause="starvation:submissions")
    job = Job.objects.create(verb="resubmit", reason="r", started_by="olga", total=1)
    asked = Approval.objects.create(verb="skip", subject=public_id, identity="x", reason="r", asked_by="ann", expires_at=timezone.now())
    paths = {
        **{name: f"approvals/{asked.pk}/{'' if name == 'approval' else name + '/'}" for name in ("approval", "approve", "refuse")},
        "order": f"orders/{public_id}/",
        "batch": "orders/batch/",
        "acknowledge": f"alerts/{alert.pk}/acknowledge/",
        "dead-letter": f"dead-letters/{letter.pk}/",
        "requeue": f"dead-letters/{letter.pk}/requeue/",
        "discard": f"dead-letters/{letter.pk}/discard/",
        "resource": "resources/payment/",
        "lift": f"pauses/{held.pk}/",
        "incident": f"incidents/{incident.pk}/",
        "acknowledge-incident": f"incidents/{incident.pk}/acknowledge/",
        "incident-notes": f"incidents/{incident.pk}/notes/",
        "incident-owner": f"incidents/{incident.pk}/owner/",
        "job": f"jobs/{job.pk}/",
        "stop-job": f"jobs/{job.pk}/stop/",
        "resume-job": f"jobs/{job.pk}/resume/",
        "end-job": f"jobs/{job.pk}/end/",
        "webhook": f"webhooks/{hook.public_id}/",
        "test-webhook": f"webhooks/{hook.public_id}/test/",
        "reply-token": f"reply-tokens/{'0' * 32}/",
        "delivery": f"deliveries/{sent.public_id}/",
        "redeliver": f"deliveries/{sent.public_id}/redeliver/",
        "return": f"returns/{back.public_id}/",
        "return-goods": f"returns/{back.public_id}/goods/",
        "return-payout": f"returns/{back.public_id}/payout/",
        "refund-payout": f"refunds/{refund.public_id}/payout/",
        "return-correction": f"returns/{back.public_id}/correction/",
        "return-correction-plan": f"returns/{back.public_id}/correction/plan/",
        "signal": f"orders/{public_id}/signals/paid/",
        **{name: f"{name}/" for name in LISTS.split()},
    }
    return lambda name: f"/api/v1/{paths.get(name) or f'orders/{public_id}/{name}/'}"


@pytest.mark.parametrize("door", DOORS, ids=lambda door: f"{door[0]}-{door[1]}")
def test_each_role_meets_what_the_table_says(places, customer, door):
    verb, name = door
    body = BODIES.get(name, {"reason": "because"}) if verb == "post" else None
    clients = {
        role: a_client(*([] if role == "anonymous" else [an_account(f"a-{role}", *([] if role == "groupless" else [role]))]))
        for role in ROLES
    } | {"customer": customer}
    path, met = places(name), {}
    for role, client in clients.items():
        with transaction.atomic():
            met[role] = getattr(client, verb)(path, body).status_code
            transaction.set_rollback(True)  # the next role meets the rows as they were

    expected = dict(zip(ROLES, DOORS[door], strict=True))
    assert {role: OPEN if expected[role] == OPEN and status not in (401, 403, 404) else status for role, status in met.items()} == expected


# The permission of a duty: the doors that it opens, beside what every viewer may.
DUTIES = {
    "handle_incident": {
        ("post", "acknowledge"), ("post", "acknowledge-incident"), ("post", "incident-notes"), ("put", "incident-owner"),
    },
    "settle_dead_letter": {("post", "requeue"), ("post", "discard")},
    "change_resource": {("patch", "resource")},
}  # fmt: skip


@pytest.mark.parametrize("duty", DUTIES)
def test_the_right_to_a_duty_opens_its_doors_alone(places, duty):
    account = an_account("carla", "viewer")
    account.user_permissions.add(Permission.objects.get(codename=duty, content_type__app_label="supervision"))
    client = a_client(account)

    for (verb, name), answers in DOORS.items():
        body = BODIES.get(name, {"reason": "because"}) if verb == "post" else None
        status = getattr(client, verb)(places(name), body).status_code
        if (verb, name) in DUTIES[duty]:
            assert status not in (401, 403, 404), (name, status)
        elif answers[ROLES.index("viewer")] != OPEN:
            assert status == answers[ROLES.index("viewer")], (name, status)


def test_every_path_of_the_api_is_in_the_table():
    named = {pattern.name for pattern in [*version_1, *order_patterns] if getattr(pattern, "name", None)}

    assert named == {name for _verb, name in DOORS}
