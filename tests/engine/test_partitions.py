"""Partitioned queues: a stable hash spreads the orders, and a changed number of queues loses no order."""

from __future__ import annotations

import pytest

from supervision.agent import get_agent
from supervision.dispatch import partitions, scheduler
from supervision.execution import runner
from supervision.testing import run_of, schedule, step, submit_many
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


def test_an_agents_work_is_spread_over_its_queues_and_each_order_always_takes_the_same(tuned):
    tuned(PARTITIONS={"alpha": 4})
    submit_many("toy-plain", [{"n": n} for n in range(40)])
    ((_, claims),) = schedule()
    agent = get_agent("alpha")

    parts = partitions.spread(agent, claims)

    assert sorted(parts) == [f"agent.alpha.{n}" for n in range(4)]
    assert sorted(claim for part in parts.values() for claim in part) == sorted(claims)
    assert partitions.spread(agent, claims) == parts


def test_orders_that_name_a_partition_share_a_queue(tuned):
    tuned(PARTITIONS={"alpha": 8})
    submit_many("toy-plain", [{"n": n, "partition": "producer-7"} for n in range(20)])
    ((_, claims),) = schedule()

    assert list(partitions.spread(get_agent("alpha"), claims)) == [f"agent.alpha.{partitions.number_of('producer-7', 8)}"]


def test_the_hash_is_the_same_in_every_process_and_version():
    assert [partitions.number_of(entity, 4) for entity in ("producer-1", "grace", "pt")] == [1, 3, 0]


def test_a_chain_ends_before_a_partitioned_agent_and_goes_on_anew(tuned):
    tuned(PARTITIONS={"beta": 2})
    key, place, _ = kit.claimed()

    assert list(scheduler._hops_after(place)) == []
    assert run_of(key).process_state == "Processing"


def test_a_worker_that_consumes_the_agents_queue_consumes_its_partitions(tuned):
    tuned(PARTITIONS={"beta": 3})

    assert partitions.of_workers(["agent.alpha", "agent.beta"]) == ["agent.beta.0", "agent.beta.1", "agent.beta.2"]
    assert partitions.of_workers(["agent.beta.1"]) == []


def test_a_worker_goes_on_by_itself_only_when_it_serves_every_partition(tuned):
    tuned(PARTITIONS={"beta": 2})
    _, place, _ = kit.started()
    runner.process.serve({"agent.alpha", "agent.beta", "agent.beta.0"})
    assert not runner._serves_next(place, 1)

    runner.process.serve({*runner.process.queues, "agent.beta.1"})

    assert runner._serves_next(place, 1)


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (4, 1), (1, 4)])
def test_the_number_of_queues_may_change_while_orders_are_under_way(tuned, before, after):
    """A message in a queue that no worker consumes any more is sent again when its claim's lease has expired."""
    tuned(PARTITIONS={"alpha": before})
    keys = submit_many("toy-plain", [{"n": n} for n in range(20)])
    assert sum(len(claims) for _, claims in schedule()) == 20  # these messages are lost with their queues
    tuned(PARTITIONS={"alpha": after})

    kit.expire_and_sweep()
    assert kit.idle_states(keys) == {"Processed"}
    assert {step(key, "alpha-step").failure_count for key in keys} == {0}


def test_one_message_per_partition_goes_out(tuned, monkeypatch, unsent_fails):
    tuned(PARTITIONS={"alpha": 3})
    submit_many("toy-plain", [{"n": n} for n in range(30)])
    ((place, claims),) = schedule()
    went = []
    monkeypatch.setattr("celery.Celery.send_task", lambda self, name, args, kwargs, *, queue, **_: went.append((queue, args[0])))

    scheduler.dispatch(place, claims)

    assert sorted(queue for queue, _ in went) == ["agent.alpha.0", "agent.alpha.1", "agent.alpha.2"]
    assert sum(len(part) for _, part in went) == 30
