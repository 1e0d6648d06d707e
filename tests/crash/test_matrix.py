"""The crash matrix: at each failpoint a real process is killed while it works on an order; the order still ends correctly.

The slice runs with all other tests. `./run chaos matrix` runs the whole matrix.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from supervision.runtime import failpoints
from tests import services
from tests.crash.cases import ELSEWHERE, POINTS, SLICE, WITH_PICKUP_SLICE, Case, cases
from tests.crash.lane import LOCAL_PICKUP, Lane, open_lane
from tests.support.shop import until


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """One shop for all cases; on RabbitMQ with CRASH_BROKER=amqp."""
    directory = tmp_path_factory.mktemp("lane")
    if os.environ.get("CRASH_BROKER") == "amqp":
        with services.own_vhost() as url, open_lane(directory, url) as running:
            yield running
    else:
        with open_lane(directory) as running:
            yield running


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case), marks=[] if case.in_slice else pytest.mark.nightly) for case in cases()])
def test_an_order_ends_right_when_a_process_dies(case: Case, lane: Lane, tmp_path: Path) -> None:
    marks = tmp_path / "reached"
    fatal = {
        "FAILPOINTS": f"{case.point}=kill9@{case.time}",
        "FAILPOINT_LOG": str(marks),
        **({"FAILPOINT_STEP": case.step} if case.step else {}),
    }
    lane.fault()

    play = shop_with_a_dying_web if case.victim == "web" else shop_with_a_dying_worker
    keys = play(lane, case, fatal)

    assert marks.read_text().splitlines()[-1].startswith(f"{case.point} kill9 {case.time} ")
    for key in keys:
        if case.undoing:
            lane.is_undone_to_nothing(key)
        else:
            lane.is_done_once(key, mails=2 if case.repeats_the_mail and key == keys[-1] else 1)
    lane.audit()


def shop_with_a_dying_worker(lane: Lane, case: Case, fatal: dict[str, str]) -> list[str]:
    """Run one case until the victim has died; returns its orders. The victim died with the last one, and all roles work again."""
    pickup = {LOCAL_PICKUP: "1"} if case.pickup else {}
    if case.point == "relay.after_publish" or case.alone:
        lane.end("scheduler")  # without a scheduler the supervisor's relay sends the hint, or the agents process schedules the order
    else:
        lane.all_work(case.victim, "agents", **pickup)
    if case.victim != "agents":
        lane.work("agents", **case.helper, **pickup)
    lane.work(case.victim, **fatal, **pickup)

    def help_along() -> None:
        """Without a scheduler: repeat the notification until the agents process is idle enough; a retry then needs all roles."""
        if case.alone and lane.lives("agents"):
            lane.all_work("agents", **pickup) if lane.scheduled_by(keys[-1]) else lane.ring()

    keys = [send(lane, case)]
    if case.needs_a_second_order:
        until(lambda: (help_along(), lane.state(keys[0]) in ("Processed", "Cancelled"))[1], what="the first order to end")
        until(lambda: lane.did("mail", keys[0]), what="the first order's mail, which the fault for the second must not refuse")
        if case.alone:
            lane.end("scheduler")
        keys.append(send(lane, case))
    assert lane.dies(case.victim, meanwhile=help_along) == -9
    if case.alone and case.point != "submit.before_commit":
        assert {actor.partition("@")[0] for key in keys for actor in lane.scheduled_by(key)} == {"agents"}
    lane.all_work("agents", **pickup)
    if case.victim == "agents":
        lane.work("agents", **pickup)
    return keys


def send(lane: Lane, case: Case) -> str:
    """Place one order. In a case about undoing, the mail service refuses the last step, so that all steps are undone."""
    if case.undoing:
        lane.fault(service="mail", mode="decline")
    key = lane.buy()
    if case.undoing:
        until(lambda: lane.state(key) in ("Compensating", "Cancelled"), what="the order to be undone")
        lane.fault()
    return key


def shop_with_a_dying_web(lane: Lane, case: Case, fatal: dict[str, str]) -> list[str]:
    """The web process dies during a request. The repeated request gets the order that was committed."""
    lane.all_work(**{LOCAL_PICKUP: "1"} if case.pickup else {})
    lane.web(**fatal)
    keys = [lane.buy() for _ in range(case.time - 1)]
    client_key = uuid.uuid4().hex
    with pytest.raises(httpx2.TransportError):
        lane.buy(client_key)
    lane.web()

    assert lane.rows("SELECT count(*) FROM supervision_submission WHERE client_key = %s", client_key) == [(1,)]
    return [*keys, lane.buy(client_key)]


def test_every_failpoint_has_its_cases_in_the_matrix_and_in_the_slice() -> None:
    assert set(POINTS) | set(ELSEWHERE) == set(failpoints.NAMES)
    assert {point for point, _, _ in SLICE} == set(POINTS)
    for pickup, some in ((False, SLICE), (True, WITH_PICKUP_SLICE)):
        assert {(case.point, case.step, case.time) for case in cases() if case.pickup == pickup} >= some
