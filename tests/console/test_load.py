"""C7, S44: waiting and running steps and recommended consumers per agent, computed from the rows only."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from prometheus_client.parser import text_string_to_metric_families

from supervision import conf
from supervision.governance import circuit_breaker
from supervision.insight import autoscaling
from supervision.insight.autoscaling import Limit, recommended_calls
from supervision.models import Resource
from supervision.operations import pauses
from supervision.testing import expire, run_until_idle, schedule, submit, submit_many
from supervision.worker import heartbeats
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


def rows(**options: Any) -> dict[str, autoscaling.Load]:
    return {row.agent: row for row in autoscaling.loads(**options)}


def a_resource(**fields: Any) -> None:
    Resource.objects.update_or_create(name=fields.pop("name", "alpha"), defaults=fields)
    circuit_breaker.forget()


def finished_lately(count: int, *, seconds: float, over: float = 100.0) -> None:
    """This many finished orders: each step took `seconds` and ended `over` seconds ago."""
    submit_many("toy-plain", [{"n": n} for n in range(count)])
    run_until_idle()
    kit.fetch(
        "UPDATE supervision_stepstate SET finished_at = now() - %(over)s * interval '1 s',"
        " started_at = now() - (%(over)s + %(seconds)s) * interval '1 s'",
        {"over": over, "seconds": seconds},
    )


def test_depth_tells_what_waits_what_runs_and_what_is_late():
    late, *_ = kit.started()
    expire(late)
    kit.started()
    kit.at_step(1)
    kit.waiting(2)
    kit.fetch("UPDATE supervision_stepstate SET not_before = now() - interval '90 s' WHERE process_state = 'Pending' AND position = 0")

    found = rows()

    assert (found["alpha"].waiting, found["alpha"].running, found["alpha"].overdue) == (2, 2, 1)
    assert 89 < found["alpha"].oldest_seconds < 120
    assert (found["beta"].waiting, found["beta"].running, found["beta"].oldest_seconds) == (0, 1, 0)
    assert (found["gamma"].waiting, found["gamma"].recommended_consumers) == (0, 0)  # agents without work are listed too


def test_what_a_worker_has_fetched_ahead_still_waits():
    kit.waiting(5)
    schedule()  # these steps are claimed and sent; a count of messages in the broker would miss them

    assert (rows()["alpha"].waiting, rows()["alpha"].running) == (5, 0)
    assert rows()["alpha"].oldest_seconds < 60


def test_what_is_not_due_does_not_wait_for_a_consumer():
    kit.waiting(3)
    kit.fetch("UPDATE supervision_stepstate SET not_before = now() + interval '1 h' WHERE position = 0")

    assert (rows()["alpha"].waiting, rows()["alpha"].recommended_consumers) == (0, 0)


@pytest.mark.parametrize(("scope", "name"), [("all", ""), ("agent", "alpha"), ("workflow", "toy-plain")])
def test_what_is_paused_wants_no_consumer(scope: str, name: str):
    kit.waiting(3)
    pauses.pause(scope, name, reason="r", by="olga")

    row = rows()["alpha"]

    assert (row.waiting, row.held, row.recommended_consumers) == (3, 3, 0)


def test_the_oldest_is_not_one_that_a_pause_holds():
    old, young = kit.waiting(2)
    for key, seconds in ((old, 900), (young, 90)):
        kit.fetch(
            "UPDATE supervision_stepstate SET not_before = now() - %(seconds)s * interval '1 s'"
            " WHERE position = 0 AND run_id = (SELECT id FROM supervision_run WHERE key = %(key)s)",
            {"key": key, "seconds": seconds},
        )
    assert 899 < rows()["alpha"].oldest_seconds < 960

    pauses.pause("order", old, reason="r", by="olga")
    assert (rows()["alpha"].waiting, rows()["alpha"].held) == (2, 1)
    assert 89 < rows()["alpha"].oldest_seconds < 150

    pauses.pause("all", "", reason="r", by="olga")
    assert (rows()["alpha"].held, rows()["alpha"].oldest_seconds) == (2, 0.0)


def test_consumers_are_the_living_processes_that_serve_the_queue():
    heartbeats.beat("agents", {"queues": ["agent.alpha", "agent.beta"]}, name="one")
    heartbeats.beat("agents", {"queues": ["agent.alpha.0", "agent.alpha.1"]}, name="two")
    heartbeats.beat("agents", {"queues": ["agent.alpha"]}, name="dead")
    kit.fetch("UPDATE supervision_heartbeat SET seen_at = now() - interval '1 h' WHERE incarnation = 'dead'")

    assert {name: row.consumers for name, row in rows().items() if row.consumers} == {"alpha": 2, "beta": 1}


@pytest.mark.parametrize(
    ("backlog", "per_second", "mean", "limit", "target", "calls"),
    [
        (0, 0.0, 1.0, Limit(), 30, 0),
        (0, 10.0, 0.5, Limit(), 30, 5),  # no backlog: ten steps a second, half a second each
        (600, 0.0, 1.0, Limit(), 30, 20),  # 600 seconds of work in 30
        (600, 10.0, 0.5, Limit(), 30, 15),
        (600, 0.0, 1.0, Limit(), 60, 10),
        (600, 0.0, 1.0, Limit(calls=7), 30, 7),  # not more than the capacity
        (600, 0.0, 1.0, Limit(rate=5.0), 30, 5),  # not more than the rate can use
        (600, 0.0, 1.0, Limit(calls=0, rate=0.0), 30, 0),  # paused
    ],
)
def test_the_recommendation_follows_its_formula(backlog: int, per_second: float, mean: float, limit: Limit, target: float, calls: int):
    assert recommended_calls(backlog, per_second, mean, limit, target) == calls


def test_consumers_follow_pace_backlog_and_target():
    finished_lately(20, seconds=2.0, over=100.0)
    kit.waiting(960)

    row = rows()["alpha"]

    assert (round(row.mean_seconds, 1), round(row.finished_per_second, 2)) == (2.0, 0.2)
    assert row.recommended_calls == 65  # 0.2/s x 2 s + 960 x 2 s / 30 s
    assert row.recommended_consumers == 3  # of 32 calls each
    assert rows(target_seconds=300.0)["alpha"].recommended_consumers == 1


def test_pace_is_measured_behind_a_backlog_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(autoscaling, "SAMPLED_RUNS", 5)
    finished_lately(10, seconds=2.0)
    ((place, claims),) = [kit.claimed()[1:]]
    kit.step_verbs.start(place, claims)
    kit.waiting(10)  # newer than all finished ones, and none of them has started

    assert round(rows()["alpha"].mean_seconds, 1) == 2.0


def test_never_more_calls_than_the_resource_allows():
    a_resource(capacity=5)
    kit.waiting(900)

    assert (rows()["alpha"].recommended_calls, rows()["alpha"].recommended_consumers) == (5, 1)
    a_resource(name="alpha-two", service="alpha", capacity=3)
    assert rows()["alpha"].recommended_calls == 8
    a_resource(name="alpha-two", service="alpha", capacity=3, paused=True)
    assert rows()["alpha"].recommended_calls == 5
    a_resource(breaker_state="open", probe_limit=2)
    assert rows()["alpha"].recommended_calls == 2  # the probes of a half-open breaker
    a_resource(paused=True)
    assert (rows()["alpha"].recommended_calls, rows()["alpha"].recommended_consumers) == (0, 0)


def test_one_consumer_is_kept_while_there_is_anything_to_do():
    kit.started()

    assert rows()["alpha"].recommended_consumers == 1


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("queue_depth", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_prints_a_table_json_or_metrics():
    kit.waiting(3)

    table = [line.split() for line in said().splitlines()]
    assert table[0][:5] == ["AGENT", "WAITING", "HELD", "RUNNING", "OVERDUE"]
    assert ["alpha", "3", "0", "0", "0"] in [line[:5] for line in table]
    documents = [json.loads(said("--json")), json.loads(said("--format", "json"))]
    for document in documents:
        alpha = next(row for row in document if row["agent"] == "alpha")
        assert (alpha["waiting"], alpha["recommended_consumers"]) == (3, 1)
    samples = {
        (sample.name, sample.labels.get("agent")): sample.value
        for family in text_string_to_metric_families(said("--format", "prom"))
        for sample in family.samples
    }
    assert samples["sas_agent_waiting", "alpha"] == 3.0
    assert samples["sas_agent_recommended_consumers", "alpha"] == 1.0
    assert samples["sas_pauses_active", None] == 0.0


def test_the_target_is_an_option():
    kit.waiting(900)

    tight = json.loads(said("--json", "--target-seconds", "5"))
    loose = json.loads(said("--json", "--target-seconds", "500"))

    calls = [next(row for row in document if row["agent"] == "alpha")["recommended_calls"] for document in (tight, loose)]
    assert calls == [180, 2]
    with pytest.raises(CommandError, match="number above 0"):
        said("--target-seconds", "0")


def test_a_transactional_agent_counts_by_cohorts():
    class Stock:
        transactional = True

    assert autoscaling.calls_at_once(Stock()) == conf.get().cohort  # type: ignore[arg-type]
    assert autoscaling.calls_at_once(None) == conf.get().agent_threads


def test_an_order_of_the_shop_is_no_stranger_here():
    key = submit("toy", {"n": 1})
    assert key
    assert set(rows()) >= {"alpha", "beta", "gamma", "stock", "payment", "shipping", "email"}
