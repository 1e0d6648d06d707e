"""A filtered list shows what one plain query finds, in the same order, page by page, however it reads the rows."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import Case, F, Value, When
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from orders.filters import OrderFilters
from orders.models import Order, Parcel
from supervision.console.lists import walked_rows
from supervision.console.lists.found_rows import AtLeast
from supervision.console.lists.walked_rows import WalkedRows
from supervision.models import Alert, Run, StepState
from tests.support.console import ORDERS

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]
FILTERS = OrderFilters()
STATES = ["Error", "Error", "Processing", "Pending", "Compensating", "Processed", "Cancelled"]
AGENTS = {"reserve-stock": "stock", "charge-payment": "payment", "book-shipment": "shipping"}
MANY = 160


def a_shop(dice: random.Random, states: Sequence[str] = STATES, count: int = MANY) -> None:
    """Orders of few different times, in all states; some have alerts, errors, parcels, resources, and nulls for each."""
    now = timezone.now()
    times = [now - timedelta(hours=dice.randrange(1, 400)) for _ in range(8)]
    runs = []
    for number in range(count):
        state = dice.choice(states)
        placed = dice.choice(times)
        late = dice.choice([timedelta(0), timedelta(0), timedelta(hours=dice.randrange(1, 300)), -timedelta(milliseconds=5)])
        run = Run(
            key=f"a-key-that-is-long-{number}", workflow="fulfil-order", version=1, payload={}, process_state=state,
            created_at=min(now, placed + late), finished_at=now if state in ("Processed", "Cancelled") else None,
            direction="undo" if state == "Compensating" else "do",
        )  # fmt: skip
        runs.append((run, placed))
    for run, placed in dice.sample(runs, len(runs)):
        run.save()
        order = Order.objects.create(
            public_id=run.key, number=f"{run.pk:09}", run=run, email=f"u{dice.randrange(3)}@example.com", currency="EUR",
            total=dice.choice(["5.00", "10.00", "10.00", "20.00"]), created_at=placed, customer=dice.choice(["Ada L", "Bob M", ""]),
        )  # fmt: skip
        if dice.random() < 0.3:
            Parcel.objects.create(
                key=f"{run.key}:parcel", order_key=order.public_id, tracking_number=f"T{dice.randrange(4)}", state="booked"
            )
        if run.finished_at is None:
            name = dice.choice(list(AGENTS))
            at = {"Error": "Error", "Processing": "Processing"}.get(run.process_state, "Pending")
            StepState.objects.create(
                run=run, name=name, position=0, agent=AGENTS[name], direction=run.direction, seq=1, process_state=at, attempt=1,
                idempotency_key=f"{run.key}:{name}", resource=dice.choice([None, None, "payment"]),
                last_error=dice.choice(["declined: 100%", "DECLINED by x_y", "lost"]) if at == "Error" else None,
                locked_by="agents@one" if at == "Processing" else None, started_at=placed if at == "Processing" else None,
                complete_by=now if at == "Processing" else None, not_before=None if at != "Pending" or dice.random() < 0.3 else placed,
            )  # fmt: skip
        if dice.random() < 0.2:
            Alert.objects.create(
                run=run, position=0, direction="do", generation=1, kind="error", code=dice.choice(["declined", "lost"]), cause="a-cause"
            )


def some_values(dice: random.Random) -> dict[str, str]:
    moment = (timezone.now() - timedelta(hours=dice.randrange(1, 400))).isoformat().replace("+00:00", "Z")
    offered = {
        "process_state": dice.choice([*STATES, "Error", "Error"]),
        "step": dice.choice(list(AGENTS)),
        "error_code": dice.choice(["declined", "lost"]),
        "error_text": dice.choice(["declined", "100%", "x_y"]),
        "resource": dice.choice(["payment", "stock"]),
        "email": "u1@example.com",
        "created_after": moment,
        "created_before": moment,
        "min_total": "10",
        "max_total": "10",
        "customer": "ada",
        "tracking_number": "T1",
    }
    return {name: offered[name] for name in dice.sample(list(offered), dice.choice([1, 2, 2, 3, 4]))}


def plain(given: dict[str, str]) -> list[int]:
    """What one statement without any of the list's ways finds."""
    rank = Case(When(run__process_state="Error", then=Value(0)), default=Value(1))
    rows = FILTERS.by(Order.objects.all(), FILTERS.read(given))
    return list(rows.order_by(rank, F("created_at").desc(), F("id").desc()).values_list("pk", flat=True))


def paged(client: Client, given: dict[str, str]) -> tuple[list[int], list[int]]:
    """The rows of all pages of the list, and what each page says how many there are."""
    found: list[int] = []
    counts = []
    for page in range(1, 60):
        shown = client.get(ORDERS, {**given, "p": str(page)}).context["cl"]
        found += [row.pk for row in shown.result_list]
        counts.append(shown.result_count)
        if page * shown.list_per_page >= shown.result_count and not isinstance(shown.result_count, AtLeast):
            break
    return found, counts


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (0, 2, 3))])
def test_a_list_under_several_filters_shows_what_a_plain_query_finds(operator: Client, monkeypatch: pytest.MonkeyPatch, seed: int):
    dice = random.Random(seed)
    a_shop(dice)
    monkeypatch.setattr(walked_rows, "PORTION", dice.choice([1, 3, 7]))
    monkeypatch.setattr(walked_rows, "LOOKED_AT", dice.choice([2, 20, 60]))
    monkeypatch.setattr(walked_rows, "GIVES_UP", dice.choice([1, 30, 10_000]))
    monkeypatch.setattr(walked_rows, "COUNTED_AHEAD", dice.choice([0, 3]))
    monkeypatch.setattr("orders.admin.OrderAdmin.list_per_page", dice.choice([5, 11, 25]))
    walked = 0
    for _ in range(25):
        given = some_values(dice)
        expected = plain(given)
        walked += bool(FILTERS.walks(FILTERS.read(given)))

        found, counts = paged(operator, given)

        assert found == expected, given
        assert counts[-1] == len(expected), given
        assert all(count <= len(expected) for count in counts), given
    assert walked > 5


def test_a_full_page_ends_the_walk_and_says_that_there_is_more(operator: Client, monkeypatch: pytest.MonkeyPatch):
    dice = random.Random(7)
    a_shop(dice, ["Error"])
    for number, (run, order) in enumerate(zip(Run.objects.order_by("pk"), Order.objects.order_by("run_id"), strict=True)):
        placed = timezone.now() - timedelta(hours=number)
        Run.objects.filter(pk=run.pk).update(created_at=placed)
        Order.objects.filter(pk=order.pk).update(created_at=placed, total="20.00" if number % 2 else "1.00")
    for name, value in (("PORTION", 5), ("LOOKED_AT", 5), ("COUNTED_AHEAD", 2)):
        monkeypatch.setattr(walked_rows, name, value)
    monkeypatch.setattr("orders.admin.OrderAdmin.list_per_page", 10)
    looked_at: list[int] = []
    fitting = WalkedRows._fitting
    monkeypatch.setattr(WalkedRows, "_fitting", lambda rows, runs: (looked_at.extend(runs), fitting(rows, runs))[1])

    answer = operator.get(ORDERS, {"process_state": "Error", "min_total": "20"})

    assert len(answer.context["cl"].result_list) == 10
    assert len(looked_at) <= 40
    assert re.search(r"\b\d+\+\s+results", answer.content.decode())


def test_a_list_of_one_page_evaluates_its_filters_once(operator: Client):
    a_shop(random.Random(3), count=40)
    query = {"error_code": "declined", "created_after": "2001-02-03"}
    with CaptureQueriesContext(connection) as seen:
        assert operator.get(ORDERS, query).content.count(b'class="data-row"') > 0
    assert len([one for one in seen.captured_queries if "2001-02-03" in one["sql"] and "orders_order" in one["sql"]]) == 1


def test_an_order_that_is_a_little_younger_than_its_run_is_found_by_its_own_time(operator: Client):
    dice = random.Random(8)
    a_shop(dice, ["Error"], 1)
    moment = timezone.now() - timedelta(hours=1)
    Run.objects.update(created_at=moment)
    Order.objects.update(created_at=moment + timedelta(milliseconds=5))
    after = (moment + timedelta(milliseconds=2)).isoformat().replace("+00:00", "Z")

    assert operator.get(ORDERS, {"process_state": "Error", "created_after": after}).context["cl"].result_count == 1


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_the_calendars_ends_are_moments_like_others(operator: Client, moment: str):
    a_shop(random.Random(9), ["Error"], 3)

    shown = operator.get(ORDERS, {"process_state": "Error", "created_after": moment}).context["cl"]

    assert shown.result_count == (3 if moment.startswith("0001") else 0)
