"""An idempotency key that the service may have forgotten (H4): no call uses it again before an operator has looked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from supervision.errors import OutcomeUnknown, TransientFailure
from supervision.operations import operator_verbs
from supervision.recovery import decisions
from supervision.testing import run_until_idle, step, submit
from tests.engine import kit
from tests.support import toy
from tests.support.history import rewrite

pytestmark = pytest.mark.usefixtures("engine", "forgetful")
MEMORY = timedelta(hours=24)


@pytest.fixture
def forgetful() -> Iterator[None]:
    """Alpha's service remembers keys for a day."""
    toy.ALPHA.key_ttl = MEMORY
    yield
    del toy.ALPHA.key_ttl


def of_unknown_effect() -> str:
    """An order whose first attempt got no answer; the service works again."""
    toy.ALPHA.on_perform = unanswered
    key = submit("toy", {"n": 1})
    run_until_idle()
    toy.ALPHA.on_perform = None
    assert step(key, "alpha-step").effect == "unknown"
    return key


unanswered = kit.raising(OutcomeUnknown("no answer"))


def time_passes(hours: float) -> None:
    rewrite("UPDATE supervision_stepevent SET at = at - %s * interval '1 hour'", [hours])


def test_a_step_is_repeated_under_its_key_while_the_service_remembers_it():
    key = of_unknown_effect()
    time_passes(23)

    kit.again()

    assert kit.state(key) == "Processed"
    assert len({request.idempotency_key for request in toy.ALPHA.performed}) == 1


def test_a_step_of_unknown_effect_stops_in_error_and_is_not_repeated_when_its_key_is_forgotten():
    key = of_unknown_effect()
    time_passes(25)

    kit.again()

    stopped = step(key, "alpha-step")
    assert (kit.state(key), stopped.process_state, stopped.effect) == ("Error", "Error", "unknown")
    assert "reconcile first" in stopped.last_error
    assert kit.alerts(key) == ["error"]
    assert len(toy.ALPHA.performed) == 1
    assert kit.healthy()


def test_an_operator_who_has_looked_lets_it_run_under_a_new_key():
    key = of_unknown_effect()
    time_passes(25)
    kit.again()

    operator_verbs.resubmit(key, by="olga", reason="the service knows nothing of it", new_generation=True)
    run_until_idle()

    assert kit.state(key) == "Processed"
    first, second = (request.idempotency_key for request in toy.ALPHA.performed)
    assert first != second


def test_a_step_whose_effect_is_known_is_repeated_however_old_it_is():
    key, place, items = kit.started("toy")
    kit.failures.fail(place, [(items[0].claim, decisions.as_failure(TransientFailure("nothing was done")))])
    time_passes(25)

    kit.again()

    assert kit.state(key) == "Processed"


def test_an_unknown_effect_is_not_undone_by_a_forgotten_key_until_an_operator_has_looked():
    key = of_unknown_effect()
    operator_verbs.cancel(key, by="olga", reason="the customer called")
    time_passes(25)

    kit.again()

    assert kit.state(key) == "Error"
    assert toy.ALPHA.undone == []
    operator_verbs.resubmit(key, by="olga", reason="there is something to undo")
    run_until_idle()
    assert kit.state(key) == "Cancelled"
    assert len(toy.ALPHA.undone) == 1
    assert kit.healthy()
