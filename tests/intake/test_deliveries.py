"""A submission that kills its consumers does not stop the shop: it is read alone, counted before that, and set aside.

No other submission is set aside: neither one in the same batch nor one that has waited for long.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection

from supervision.intake import submission
from supervision.intake.submission import NewSubmission
from supervision.models import DeadLetter, Run, Submission
from supervision.operations import operator_verbs
from supervision.testing import submit_many
from tests.engine import kit
from tests.intake.conftest import ROOT
from tests.support import forked

pytestmark = pytest.mark.usefixtures("engine")


def test_a_submission_that_kills_its_readers_is_set_aside_and_the_others_become_orders() -> None:
    bodies = ['{"n": 1}', '{"n": 2}', '{"n": "killer"}', '{"n": 3}']
    keys = [submission.new_public_id() for _ in bodies]
    submission.accept([NewSubmission(public_id=key, payload=body, workflow="toy-plain") for key, body in zip(keys, bodies, strict=True)])

    arguments = [sys.executable, "-m", "tests.intake.process", str(connection.settings_dict["NAME"]), "submissions"]
    done = forked.run(arguments, cwd=ROOT, timeout=60)

    assert done.stdout.splitlines() == ["killed"] * 4 + ["ended"], done.stderr
    assert sorted(Run.objects.values_list("key", flat=True)) == sorted([keys[0], keys[1], keys[3]])
    [letter] = DeadLetter.objects.all()
    assert (letter.public_id, bytes(letter.body), letter.source) == (keys[2], bodies[2].encode(), "submission")
    assert letter.deliveries == 3
    assert "read alone 3 times" in letter.reason

    operator_verbs.requeue_dead_letter(letter.pk, by="olga", reason="the reader is mended")
    waiting = Submission.objects.get(public_id=keys[2])
    assert (waiting.consumed_at, waiting.deliveries, waiting.reader, waiting.suspected_at) == (None, 0, None, None)


CONSUMERS = 5


@pytest.fixture
def consumers() -> Iterator[Callable[[], list[str]]]:
    """Start five consumers at the same moment; returns what each printed after no submission waits any more."""
    arguments = [sys.executable, "-m", "tests.intake.process", str(connection.settings_dict["NAME"]), "submissions"]
    environ = {**os.environ, "WAIT": "1", "LOG_LEVEL": "ERROR"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    begun = [forked.Popen(arguments, cwd=ROOT, env=environ, start_new_session=True, **pipes) for _ in range(CONSUMERS)]

    def work() -> list[str]:
        for each in begun:
            assert each.stdout.readline() == "ready\n"
        for each in begun:
            each.stdin.write("\n")
            each.stdin.flush()
        return [line for each in begun for line in each.communicate(timeout=120)[0].split()]

    yield work
    for each in begun:
        with suppress(ProcessLookupError):
            os.killpg(each.pid, signal.SIGKILL)
        each.wait(10)


def a_backlog(count: int, *, age: float = 60.0, poison: object = None) -> list[str]:
    """This many orders that have waited for `age` seconds: a quarter of them in sessions, one of them poisonous."""
    payloads = [{"n": n, **({"session_key": f"s{n % 40}"} if n % 4 == 0 else {})} for n in range(count)]
    if poison is not None:
        payloads[count // 2]["n"] = poison
    keys = submit_many("toy-plain", payloads)
    kit.fetch("UPDATE supervision_submission SET created_at = now() - %s * interval '1 s'", [age])
    return keys


def sessions_are_in_order() -> bool:
    """Check that each session's orders became runs in the order of acceptance, and that only the first may begin."""
    rows = kit.fetch(
        "SELECT r.session_key, u.id, s.not_before IS NULL FROM supervision_run r JOIN supervision_submission u ON u.public_id = r.key"
        " JOIN supervision_stepstate s ON s.run_id = r.id AND s.position = 0 WHERE r.session_key IS NOT NULL ORDER BY r.id"
    )
    assert {session for session, _, _ in rows} == {f"s{n}" for n in range(0, 40, 4)}
    for session in {session for session, _, _ in rows}:
        ids, blocked = zip(*[rest for key, *rest in rows if key == session], strict=True)
        assert list(ids) == sorted(ids)
        assert list(blocked) == [False, *[True] * (len(ids) - 1)]
    return True


def test_five_consumers_of_a_backlog_set_nothing_aside(consumers: Callable[[], list[str]]) -> None:
    keys = a_backlog(5_000)

    assert consumers() == ["ended"] * CONSUMERS

    assert DeadLetter.objects.count() == 0
    assert Run.objects.count() == len(keys)
    assert not Submission.objects.exclude(deliveries=0).exists()  # no consumer counted a lone reading
    assert sessions_are_in_order()


@pytest.mark.parametrize(
    ("poison", "age"),
    [
        ("killer", 60.0),
        ("killer when written", 0.0),
        pytest.param("killer", 0.0, marks=pytest.mark.nightly),
        pytest.param("killer when written", 60.0, marks=pytest.mark.nightly),
    ],
)
def test_five_consumers_of_a_backlog_set_the_poisonous_one_aside_within_five_readings(
    consumers: Callable[[], list[str]], poison: str, age: float
) -> None:
    keys = a_backlog(1_000, age=age, poison=poison)

    told = consumers()

    assert told.count("ended") == CONSUMERS
    assert 1 <= told.count("killed") <= 5
    assert list(DeadLetter.objects.values_list("public_id", flat=True)) == [keys[500]]
    assert Run.objects.count() == len(keys) - 1
    assert sessions_are_in_order()
