"""The scheduler's messages: only ids, one chain per cohort, on the agents' queues; a lost message loses no order."""

from __future__ import annotations

import json

import pytest
from celery import current_app, signature
from celery.app.trace import build_tracer
from celery.signals import before_task_publish
from celery.utils import uuid

from supervision import tasks
from supervision import workflow as definitions
from supervision.dispatch import scheduler
from supervision.errors import PermanentFailure
from supervision.execution import runner
from supervision.intake import consuming, submission
from supervision.models import DeadLetter
from supervision.operations import operator_verbs
from supervision.store import claiming
from supervision.testing import run_of, schedule, submit, submit_many
from supervision.wakeup import hints
from supervision.workflow import Workflow
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def test_a_cohort_travels_as_one_chain_of_ids(broker):
    keys = submit_many("toy-plain", [{"n": n, "secret": "x"} for n in range(3)])

    report = scheduler.schedule_once()

    ((task, (args, _, embedded)),) = broker("agent.alpha")
    assert (report.claimed, report.dispatched) == (3, 1)
    assert task == scheduler.PERFORM
    assert args == [[[run_of(key).pk, 1] for key in keys], "toy-plain", 1, "do", 0]
    assert [(link["args"], link["options"]["queue"]) for link in embedded["chain"]] == [
        (["toy-plain", 1, "do", 2], "agent.gamma"),
        (["toy-plain", 1, "do", 1], "agent.beta"),
    ]
    assert all(link["options"]["task_id"] for link in embedded["chain"]), "Celery's canvas gives each link its id"
    assert "secret" not in json.dumps([args, embedded])


def test_a_large_claim_travels_in_cohorts(broker, tuned):
    kit.waiting(10)
    tuned(COHORT=4)

    scheduler.claim_due()

    sizes = [len(args[0]) for _, (args, *_) in broker("agent.alpha")]
    assert sum(sizes) == 10
    assert max(sizes) == 4


def test_an_undo_travels_alone(broker):
    kit.undoing(1)

    scheduler.schedule_once()

    ((_, (args, _, embedded)),) = broker("agent.alpha")
    assert args[1:] == ["toy-plain", 1, "undo", 0]
    assert not embedded["chain"]


def test_a_workflow_the_code_does_not_know_keeps_nobody_elses_message_back(broker):
    kit.define(Workflow("gone", toy.steps(), intake=toy.INTAKE))
    submit("gone", {"n": 1})
    other = submit("toy-plain", {"n": 2})
    consuming.consume_batch(born=False)
    definitions._workflows.pop(("gone", 1))
    definitions._newest.pop("gone")

    scheduler.claim_due()

    ((_, (args, *_)),) = broker("agent.alpha")
    assert args[0] == [[run_of(other).pk, 1]]


def test_a_broker_that_is_away_is_no_error_and_loses_no_order(monkeypatch):
    monkeypatch.setattr("celery.Celery.send_task", lambda *_, **__: (_ for _ in ()).throw(ConnectionError("no broker")))
    key = submit("toy-plain", {"n": 1})

    assert scheduler.schedule_once().claimed == 1

    monkeypatch.setattr(hints, "enabled", True)
    assert hints.publish(hints.SCHEDULE) is False  # the hint fails with a log line and has no other consequence
    monkeypatch.setattr(hints, "enabled", False)
    kit.expire_and_sweep(key)
    assert kit.idle_state(key) == "Processed"


def test_the_consumer_hands_out_what_it_wrote_and_stops_when_nothing_waits(broker):
    submit_many("toy-plain", [{"n": n} for n in range(5)])

    scheduler.consume()

    assert sum(len(args[0]) for _, (args, *_) in broker("agent.alpha")) == 5
    assert not submission.waiting()


def test_accepting_an_order_hints_at_the_consumer(broker, monkeypatch):
    monkeypatch.setattr(hints, "enabled", True)

    submit("toy-plain", {"n": 1})
    hints.flush()

    assert {task for task, _ in broker("submissions")} == {hints.CONSUME}


@pytest.mark.parametrize("verb", [operator_verbs.resubmit, operator_verbs.skip, operator_verbs.compensate, operator_verbs.cancel])
def test_every_verb_hints_at_the_scheduler(verb, broker, monkeypatch):
    key = kit.in_error(1)
    monkeypatch.setattr(hints, "enabled", True)

    verb(key, by="olga", reason="r")
    hints.flush()

    assert hints.SCHEDULE in {task for task, _ in broker("scheduler")}


def test_whether_something_is_due_or_waits_is_answered_by_the_rows():
    assert (scheduler.due(), submission.waiting()) == (False, False)
    submit("toy-plain", {"n": 1})
    assert (scheduler.due(), submission.waiting(), submission.waiting(60)) == (False, True, False)
    consuming.consume_batch(born=False)
    assert (scheduler.due(), submission.waiting()) == (True, False)
    claiming.claim(1)
    assert scheduler.due() is False


@pytest.fixture
def worker(broker, unsent_fails):
    """Execute messages as Celery does, link by link; returns the queues of the executed tasks."""

    def work(*queues: str) -> list[str]:
        done: list[str] = []
        while messages := [(queue, message) for queue in queues for message in broker(queue)]:
            for queue, (task, (args, kwargs, embedded)) in messages:
                trace = build_tracer(task, getattr(tasks, task.rpartition(".")[2]), app=current_app)
                request = {"id": uuid(), "task": task, "chain": embedded["chain"], "delivery_info": {}, "args": args, "kwargs": kwargs}
                trace(request["id"], args, kwargs, request)
                done.append(queue)
        return done

    return work


AGENTS = ("agent.alpha", "agent.beta", "agent.gamma")


def test_a_chain_carries_a_cohort_through_all_queues(worker):
    keys = submit_many("toy", [{"n": n} for n in range(5)])
    scheduler.schedule_once()

    assert worker(*AGENTS) == list(AGENTS)

    assert [kit.state(key) for key in keys] == ["Processed"] * 5
    assert kit.healthy()


def test_celery_describes_no_claims_for_its_logs(worker, caplog):
    """It would walk every claim of every link, which took 40 us for each order of four steps."""
    described: list[str] = []

    def listen(headers=None, **_):
        described.append(headers["argsrepr"])

    submit_many("toy", [{"n": n} for n in range(20)])
    before_task_publish.connect(listen)
    caplog.set_level("INFO", logger="celery.app.trace")
    try:
        scheduler.schedule_once()
        worker(*AGENTS)
    finally:
        before_task_publish.disconnect(listen)

    assert [told for told in described if "20 orders" in told or told == "(toy 1)"] == described
    assert len(described) == 3
    assert all(len(record.getMessage()) < 150 for record in caplog.records if "succeeded" in record.getMessage())


def test_a_chain_of_the_release_before_is_performed(worker):
    """Its links were written by hand, without ids."""
    key = submit("toy", {"n": 1})
    ((_, claims),) = schedule()
    links = [
        {
            "task": scheduler.PERFORM,
            "args": ["toy", 1, "do", position],
            "kwargs": {},
            "options": {"queue": queue, "ignore_result": True, "retry": False},
            "subtask_type": None,
            "immutable": False,
        }
        for position, queue in ((2, "agent.gamma"), (1, "agent.beta"))
    ]
    first = {"args": ([list(claim) for claim in claims], "toy", 1, "do", 0), "queue": "agent.alpha"}
    current_app.send_task(scheduler.PERFORM, **first, chain=links, ignore_result=True, retry=False)

    assert worker(*AGENTS) == list(AGENTS)
    assert kit.state(key) == "Processed"


def test_a_chain_skips_the_queues_whose_work_was_done_on_the_way(worker):
    runner.process.serve({"agent.alpha", "agent.beta"})
    key = submit("toy", {"n": 1})
    scheduler.schedule_once()

    assert worker(*AGENTS) == ["agent.alpha", "agent.gamma"]
    assert kit.state(key) == "Processed"


def test_a_chain_ends_where_a_step_was_refused(worker):
    toy.BETA.on_perform = kit.raising(PermanentFailure("no"))
    key = submit("toy", {"n": 1})
    scheduler.schedule_once()

    assert worker(*AGENTS) == ["agent.alpha", "agent.beta"]
    assert (kit.state(key), len(toy.GAMMA.performed)) == ("Error", 0)


def test_a_message_delivered_twice_carries_its_order_on_once(worker, broker):
    (key,) = kit.waiting(workflow="toy")
    ((place, claims),) = claiming.claim(1).items()
    scheduler.dispatch(place, claims)
    scheduler.dispatch(place, claims)

    assert worker(*AGENTS) == ["agent.alpha", "agent.alpha", "agent.beta", "agent.gamma"]
    assert [len(agent.performed) for agent in (toy.ALPHA, toy.BETA, toy.GAMMA)] == [1, 1, 1]
    assert kit.state(key) == "Processed"


@pytest.mark.parametrize(
    "args",
    [
        [None, "toy", 1, "do", 0],
        [[["x", 1]], "toy", 1, "do", 0],
        [[[1, 1]], "no-such-workflow", 1, "do", 0],
        [[[1, 1]], "toy", 1, "do", 99],
        [[[1, 1]], "toy"],
    ],
    ids=["no claims", "no number", "unknown workflow", "unknown step", "too short"],
)
def test_a_message_that_makes_no_sense_is_kept_and_harms_nobody(args, worker):
    signature(scheduler.PERFORM, args=args, app=current_app, queue="agent.alpha").apply_async()

    worker(*AGENTS)

    letter = DeadLetter.objects.get()
    assert json.loads(bytes(letter.body)) == args
    assert letter.source == "task supervision.perform"
