"""Fair turns and aging: one client's flood delays only that client, urgent orders go first, and no order waits for ever."""

from __future__ import annotations

import pytest

from supervision.intake import consuming
from supervision.models import Run
from supervision.store import claiming
from supervision.testing import run_of, submit
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(autouse=True)
def _fresh():
    consuming.fair_turns.forget()


def claimed_order(count):
    """The keys in the order in which CLAIM takes them, one by one."""
    taken = [claims[0].run_id for _ in range(count) for claims in claiming.claim(1).values()]
    names = dict(Run.objects.filter(pk__in=taken).values_list("pk", "key"))
    return [names[run_id] for run_id in taken]


def test_one_clients_flood_does_not_starve_another():
    flood = [submit("toy-plain", {"n": n}, client="flood") for n in range(150)]
    while consuming.consume_batch(born=False).consumed:
        pass
    guest = submit("toy-plain", {"n": 0}, client="guest")
    consuming.consume_batch(born=False)

    order = claimed_order(60)

    assert guest in order[:50], "the guest waits for the whole flood"
    assert [key for key in order if key != guest] == flood[:59]


def test_while_there_is_room_nobody_is_put_off():
    keys = [submit("toy-plain", {"n": n}, client="flood") for n in range(100)]

    report = consuming.consume_batch()

    assert sum(map(len, report.born.values())) == 100
    assert {run_of(key).process_state for key in keys} == {"Processing"}


def test_a_turn_is_never_put_off_further_than_one_step_of_priority():
    assert max(consuming.fair_turns.delays(["flood"] * 200_000)) == consuming.FairTurns.MOST_SECONDS
    assert consuming.fair_turns.delays(["flood", "guest"]) == [pytest.approx(consuming.FairTurns.MOST_SECONDS, abs=5), 0.0]


def test_high_overtakes_and_low_has_its_turn_within_its_bound_under_constant_high_load():
    """One step of priority is worth ten minutes: a low order waits for at most twenty minutes of high ones."""
    low = submit("toy-plain", {"n": 0, "priority": -1})
    consuming.consume_batch(born=False)
    waited = 0
    for minute in range(30):
        urgent = [submit("toy-plain", {"n": n, "priority": 1}, client=f"c{n}") for n in range(3)]
        consuming.consume_batch(born=False)
        order = claimed_order(3)  # there is room for three claims a minute, and three urgent orders come every minute
        if low in order:
            waited = minute
            break
        assert set(order) <= set(urgent) | set(Run.objects.values_list("key", flat=True))
        kit.fetch(
            "UPDATE supervision_stepstate SET turn_at = turn_at - interval '1 min', not_before = not_before - interval '1 min'"
            " WHERE process_state = 'Pending' AND not_before IS NOT NULL"
        )

    assert 15 <= waited <= 21
