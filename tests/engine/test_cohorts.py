"""Many orders in one message: a failing or slow order does not affect the others, and the number of threads is bounded."""

from __future__ import annotations

import threading

import pytest

from supervision.agent import StepRequest
from supervision.errors import PermanentFailure, TransientFailure
from supervision.execution import runner
from supervision.execution.call_pool import CallPool
from supervision.models import StrayReply
from supervision.runtime import failpoints
from supervision.testing import make_due, run_until_idle, schedule, step, submit, submit_many
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def test_words_the_database_cannot_keep_harm_nobody():
    toy.ALPHA.on_perform = lambda request: kit.raising(PermanentFailure("bad \x00 \udc80"))(request) if request.payload["n"] == 2 else None
    keys = submit_many("toy-plain", [{"n": n} for n in range(4)])

    run_until_idle()

    assert [kit.state(key) for key in keys] == ["Processed", "Processed", "Error", "Processed"]


@pytest.mark.parametrize(
    ("answer", "states"),
    [
        ({"x": object()}, ("Error", "Error")),  # kept by no JSON: another attempt would return the same
        ({"x": "\x00"}, ("Error", "Error")),
        ({"x": float("nan")}, ("Error", "Error")),
        ({"x": "\ud800"}, ("Error", "Error")),
    ],
    ids=["object", "NUL", "NaN", "half"],
)
def test_an_answer_the_database_cannot_keep_fails_only_its_own_step(answer, states):
    toy.ALPHA.on_perform = lambda request: answer if request.payload["n"] == 2 else None
    keys = submit_many("toy-plain", [{"n": n} for n in range(4)])

    run_until_idle()

    assert [kit.state(key) for key in keys] == ["Processed", "Processed", states[0], "Processed"]
    row = step(keys[2], "alpha-step")
    assert (row.process_state, row.failure_count, row.effect) == (states[1], 1, "unknown")


def test_a_checkpoint_the_database_cannot_keep_fails_only_its_own_step():
    together = threading.Barrier(3)

    def note(request: StepRequest) -> None:
        together.wait(10)
        request.checkpoint(at="\x00" if request.payload["n"] == 1 else "here")

    toy.ALPHA.on_perform = note
    keys = submit_many("toy-plain", [{"n": n} for n in range(3)])

    go_through_alpha()

    assert [step(key, "alpha-step").checkpoint for key in keys] == [{"at": "here"}, None, {"at": "here"}]


def go_through_alpha() -> None:
    for place, claims in schedule():
        runner.run(place, claims)
    runner.process.finish_up(5)


def test_an_agent_gets_the_remaining_budget():
    seen: list[float] = []
    toy.ALPHA.on_perform = lambda request: seen.append(request.remaining)
    kit.ran()

    assert 29 < seen[0] <= 30


def test_a_process_frozen_past_its_deadline_does_not_call_the_agent(tuned):
    tuned(COMPLETE_WITHIN=0.2)
    failpoints.load({"FAILPOINTS": "agent.after_start=sleep=0.3", "ALLOW_FAILPOINTS": "1"})
    submit("toy-plain", {"n": 1})

    go_through_alpha()

    assert toy.ALPHA.performed == []


def test_a_checkpoint_is_durable_and_merged_and_given_to_the_next_attempt():
    def note(request: StepRequest) -> None:
        request.checkpoint(first=1)
        request.checkpoint(second=2)
        if request.attempt == 1:
            raise TransientFailure("after the checkpoint")

    toy.ALPHA.on_perform = note
    key = kit.ran()
    assert step(key, "alpha-step").checkpoint == {"first": 1, "second": 2}
    make_due(key)

    run_until_idle()

    assert toy.ALPHA.performed[1].checkpoint_data == {"first": 1, "second": 2}
    assert kit.state(key) == "Processed"


def test_an_agent_whose_claim_was_broken_is_stopped_by_its_checkpoint():
    came_to_its_end: list[bool] = []

    def note(request: StepRequest) -> None:
        with kit.another_connection() as other:
            other.execute("UPDATE supervision_stepstate SET complete_by = now() - interval '1 s' WHERE process_state = 'Processing'")
            other.commit()
        request.checkpoint(intent="pi_1")
        came_to_its_end.append(True)

    toy.ALPHA.on_perform = note
    key = submit("toy-plain", {"n": 1})

    go_through_alpha()

    assert came_to_its_end == []
    assert step(key, "alpha-step").checkpoint is None
    assert StrayReply.objects.get(run__key=key).outcome == "transient"


def test_slow_members_of_a_cohort_do_not_hold_the_others_up(eventually):
    slow = threading.Event()
    toy.ALPHA.on_perform = lambda request: slow.wait(30) and None if request.payload["n"] == 0 else None
    keys = submit_many("toy-plain", [{"n": n} for n in range(10)])
    (onward,) = schedule()

    while onward is not None:
        onward = runner.run(*onward)

    try:
        assert [kit.state(key) for key in keys] == ["Processing"] + ["Processed"] * 9
        assert kit.states(keys[0])[0] == "Processing"
    finally:
        slow.set()
    eventually(lambda: kit.states(keys[0])[:2] == ["Processed", "Processing"], what="the straggler's own way on")


def test_the_test_kit_performs_the_chains_of_late_answers_too():
    """An answer later than PATIENCE_SECONDS leaves its cohort, on a busy machine also one that should have been quick."""
    further_on = threading.Event()
    toy.ALPHA.on_perform = lambda request: further_on.wait(20) and None if request.payload["n"] == 0 else None
    toy.BETA.on_perform = lambda request: further_on.set()
    keys = submit_many("toy-plain", [{"n": n} for n in range(3)])

    assert kit.idle_states(keys) == {"Processed"}


@pytest.mark.parametrize("pace", [0.0, 1.0], ids=["usually quick", "usually slow"])
def test_an_order_does_not_wait_behind_another_orders_hanging_call(pace):
    pool = CallPool(4)
    pool._pace["kind"] = pace
    hanging, hold, other = threading.Event(), threading.Event(), threading.Event()

    pool.run(lambda item: (hanging.set(), hold.wait(20)), ["hangs"], "kind")
    assert hanging.wait(10)
    pool.run(lambda item: other.set(), ["passes"], "kind")

    try:
        assert other.wait(10)
    finally:
        hold.set()


def test_no_more_calls_run_at_once_than_the_pool_has_threads():
    pool = CallPool(3)
    running, most, lock, free = [0], [0], threading.Lock(), threading.Event()
    finished = threading.Semaphore(0)

    def call(item: int) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
            if running[0] == 3:
                free.set()
        free.wait(10)
        with lock:
            running[0] -= 1
        finished.release()

    before = threading.active_count()
    pool.run(call, list(range(20)), "slow")
    threads = threading.active_count() - before  # no more threads come later: all are started before `run` returns

    assert threads == 3
    assert all(finished.acquire(timeout=10) for _ in range(20))
    assert most[0] == 3


def test_waiting_for_a_slow_agents_threads_is_nobodys_failure(tuned, eventually):
    size = runner.process.pool.size
    hold = threading.Event()
    toy.ALPHA.on_perform = lambda request: hold.wait(30) and None
    runner.process.pool.forget()
    keys = submit_many("toy-plain", [{"n": n} for n in range(size + 10)])
    ((place, claims),) = schedule()
    worker = threading.Thread(target=lambda: (runner.run(place, claims), kit.connection.close()), daemon=True)

    worker.start()
    try:
        eventually(lambda: len(toy.ALPHA.performed) == size, what="a full pool")
        begun = kit.fetch("SELECT count(*) FROM supervision_stepstate WHERE started_at IS NOT NULL")[0][0]
        assert begun == size
        kit.expire_and_sweep()
    finally:
        hold.set()
    worker.join(20)
    runner.process.finish_up(5)

    counts = kit.fetch(
        "SELECT failure_count, dispatch_count, count(*) FROM supervision_stepstate WHERE position = 0 GROUP BY 1, 2 ORDER BY 1"
    )
    assert counts == [(0, 1, 10), (1, 0, size)]
    assert len(keys) == size + 10
