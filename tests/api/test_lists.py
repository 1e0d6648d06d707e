"""Pages, filters, catalogue, alerts, dead letters, queues and probes."""

from __future__ import annotations

from base64 import b64decode

import pytest

from orders.models import Product
from supervision.intake.consuming import consume_batch
from supervision.intake.submission import NewSubmission, accept, new_public_id
from supervision.models import Alert, DeadLetter, Run, Submission
from tests.shopping import a_client, a_product, a_request, order, signed_in

ORDERS = "/api/v1/orders/"


def walk(client, path, **query):
    """Follow every link to the next page, then every link back: (pages, pages on the way back)."""
    answer = client.get(path, query).json()
    forward, back = [answer], []
    while forward[-1]["next"]:
        forward.append(client.get(forward[-1]["next"]).json())
    answer = forward[-1]
    while answer["previous"]:
        answer = client.get(answer["previous"]).json()
        back.append(answer)
    return forward, back


@pytest.mark.parametrize("ordering", ["created_at", "-created_at"])
def test_pages_lead_forward_and_back_through_every_order_once(shop_server, ordering):
    shop_server.post(f"{ORDERS}batch/", {"orders": [a_request()] * 7})  # one commit: one created_at for all
    for _ in range(4):
        order(shop_server)
    consume_batch(born=False)

    forward, back = walk(shop_server, ORDERS, page_size=3, ordering=ordering)

    ids = [[row["id"] for row in page["results"]] for page in forward]
    assert [len(page) for page in ids] == [3, 3, 3, 2]
    assert len({public_id for page in ids for public_id in page}) == 11
    assert [[row["id"] for row in page["results"]] for page in back] == ids[-2::-1]
    times = [row["created_at"] for page in forward for row in page["results"]]
    assert times == sorted(times, reverse=ordering.startswith("-"))
    assert forward[0]["previous"] is None


def test_an_order_that_comes_meanwhile_moves_no_page(customer):
    for _ in range(4):
        order(customer, consumed=True)
    first = customer.get(ORDERS, {"page_size": 2}).json()

    order(customer, consumed=True)
    second = customer.get(first["next"]).json()

    assert not {row["id"] for row in first["results"]} & {row["id"] for row in second["results"]}


def test_filters_narrow_and_never_widen(customer, operator):
    mine = order(customer)
    theirs = order(signed_in("bob", "customer"), email="bob@example.com")
    consume_batch(born=False)
    created_at = customer.get(f"{ORDERS}{mine}/").json()["created_at"]

    def ids(client, **query):
        return [row["id"] for row in client.get(ORDERS, query).json()["results"]]

    assert ids(customer) == [mine]
    assert ids(customer, email="bob@example.com") == []
    assert ids(operator) == [theirs, mine]
    assert ids(operator, email="bob@example.com") == [theirs]
    assert ids(operator, created_after=created_at) == [theirs]
    assert ids(operator, process_state="Pending", ordering="created_at") == [mine, theirs]
    assert ids(operator, process_state="Error") == []
    assert ids(operator, step="reserve-stock") == [theirs, mine]
    assert ids(operator, step="charge-payment") == []


def test_the_catalogue_is_open_and_shows_what_can_be_bought(mug):
    a_product("GONE", active=False)
    a_product("CUP", available=0)

    answer = a_client().get("/api/v1/products/").json()

    assert [product["sku"] for product in answer["results"]] == ["CUP", "MUG-BLUE"]
    assert answer["results"][1] | {"image": ""} == {
        "sku": "MUG-BLUE", "name": "Product MUG-BLUE", "price": "12.90", "currency": "EUR", "available": 50, "category": None, "image": ""
    }  # fmt: skip
    assert answer["results"][0]["image"].startswith("http")
    assert Product.objects.count() == 3


def test_an_operator_acknowledges_an_alert_and_a_viewer_only_looks(customer, operator, viewer):
    order(customer, consumed=True)
    run = Run.objects.get()
    alert = Alert.objects.create(run=run, position=1, direction="do", generation=1, kind="error", step="charge-payment", message="declined")

    assert viewer.get("/api/v1/alerts/").json()["results"][0]["order"] == run.key
    assert viewer.post(f"/api/v1/alerts/{alert.pk}/acknowledge/").status_code == 403
    assert customer.get("/api/v1/alerts/").status_code == 403
    answer = operator.post(f"/api/v1/alerts/{alert.pk}/acknowledge/")

    assert (answer.status_code, answer.json()["acknowledged_by"]) == (200, "olga")
    assert operator.get("/api/v1/alerts/", {"acknowledged": "false"}).json()["results"] == []
    assert operator.post("/api/v1/alerts/424242/acknowledge/").status_code == 404


def test_an_operator_requeues_or_discards_what_nobody_could_read(operator, viewer):
    bodies = ['{"email": 1}', "not json \u2603"]
    accept([NewSubmission(public_id=new_public_id(), workflow="fulfil-order", payload=body) for body in bodies])
    consume_batch(born=False)

    letters = viewer.get("/api/v1/dead-letters/", {"resolved": "false"}).json()["results"]
    requeued = operator.post(f"/api/v1/dead-letters/{letters[0]['id']}/requeue/", {"reason": "fixed"})
    discarded = operator.post(f"/api/v1/dead-letters/{letters[1]['id']}/discard/", {"reason": "junk"})
    again = operator.post(f"/api/v1/dead-letters/{letters[1]['id']}/discard/", {"reason": "junk"})

    assert sorted(b64decode(letter["body"]).decode() for letter in letters) == sorted(bodies)
    assert [answer.status_code for answer in (requeued, discarded, again)] == [202, 202, 409]
    assert DeadLetter.objects.filter(resolved_at__isnull=True).count() == 0
    assert Submission.objects.filter(consumed_at__isnull=True).count() == 1
    assert viewer.post(f"/api/v1/dead-letters/{letters[0]['id']}/discard/", {"reason": "x"}).status_code == 403


def test_queues_tell_each_agents_load(customer, operator):
    for _ in range(2):
        order(customer, consumed=True)

    queues = {queue["agent"]: queue for queue in operator.get("/api/v1/queues/").json()["results"]}

    assert queues["email"]["waiting"] == queues["email"]["running"] == 0
    queue = queues["stock"]
    assert (queue["agent"], queue["waiting"], queue["running"], queue["overdue"]) == ("stock", 2, 0, 0)
    assert queue["oldest_seconds"] >= 0


@pytest.mark.django_db(transaction=True)  # the readiness probe has a connection of its own
def test_probes_answer_anybody_and_count_what_waits(customer):
    order(customer)

    assert a_client().get("/healthz").json() == {"status": "ok"}
    ready = a_client().get("/readyz").json()
    assert (ready["status"], ready["backlog"]["submissions_waiting"]) == ("ok", 1)
    text = a_client().get("/metrics").content.decode()
    assert "sas_submissions_waiting 1.0" in text
    assert 'sas_orders{state="Error"} 0.0' in text
