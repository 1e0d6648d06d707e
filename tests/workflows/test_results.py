"""State and results of a run: read at once, or awaited by threads and by coroutines, also in a view under ASGI."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from datetime import timedelta

import pytest
from django.core.asgi import get_asgi_application
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.http import JsonResponse
from django.test import AsyncClient
from django.urls import path

import supervision
from chaos.look import until
from supervision import PermanentFailure, testing
from supervision.errors import SupervisionError, UnknownRun, UnreadableSubmission
from supervision.insight import results
from supervision.insight.directory import state_facts
from supervision.intake import consuming
from supervision.models import Run, StepState
from supervision.operations import archive, operator_verbs
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, paid


async def view(request, key):
    try:
        found = await supervision.aresult(key, timeout=float(request.GET.get("timeout", 10)))
    except TimeoutError as error:
        return JsonResponse({"detail": str(error)}, status=504)
    return JsonResponse({"state": found.state, "results": found.results})


urlpatterns = [path("results/<str:key>/", view)]


@pytest.fixture
def both(flow):
    """Two steps; the first one answers with the payload's number."""
    flow(ALPHA, BETA, name="both")
    toy.ALPHA.on_perform = lambda request: {"n": request.payload["n"]}


def settle(key):
    """`result` and `aresult` of a run at rest, which have to be the same."""
    found = supervision.result(key, timeout=0)
    assert asyncio.run(supervision.aresult(key, timeout=0)) == found
    return found


@pytest.fixture
def looks(monkeypatch):
    """The looks that were made, each as its keys."""
    made, look = [], results._look

    def counted(keys):
        found = look(keys)
        made.append(tuple(keys))
        return found

    monkeypatch.setattr(results, "_look", counted)
    return made


def after_a_look(looks, work):
    """Do the work in a thread as soon as another look has been made, which found nothing."""
    seen = len(looks)

    def later():
        try:
            until(lambda: len(looks) > seen, within=20)
            work()
        finally:
            connection.close()

    thread = threading.Thread(target=later)
    thread.start()
    return thread


def threads():
    return [thread.name for thread in threading.enumerate()]


def connections():
    """How many sessions other than this thread's the database has."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
        return cursor.fetchone()[0]


# ----------------------------------------------------------------------------------------------------- at rest


def refuse(request):
    raise PermanentFailure("the address does not exist")


def test_a_run_that_is_done_gives_its_state_and_what_its_steps_returned(sas, both):
    run = sas.start("both", {"n": 7})

    found = settle(run.key)
    assert (found.key, found.state, found.succeeded) == (run.key, "Processed", True)
    assert found.results == {"alpha-step": {"n": 7}, "beta-step": {"by": "beta"}}
    assert (found.failed_step, found.error) == (None, None)


def test_an_archived_run_answers_as_before(sas, both):
    run = sas.start("both", {"n": 7})
    before = settle(run.key)
    testing.let_pass(86_400.0)
    assert sum(moved.runs for moved in archive.batches(timedelta(hours=1))) == 1

    assert settle(run.key) == before
    assert (supervision.state(run.key), Run.objects.count()) == ("Processed", 0)


def test_a_run_that_was_undone_says_what_stopped_it_like_the_list_of_runs(sas, both):
    toy.BETA.on_perform = refuse
    run = sas.start("both", {"n": 1})
    run.compensate()
    sas.run()

    found = settle(run.key)
    assert (found.state, found.succeeded, found.failed_step) == ("Cancelled", False, "beta-step")
    steps = list(StepState.objects.filter(run__key=run.key).order_by("direction", "position"))
    listed = state_facts(Run.objects.get(key=run.key), steps)
    assert (listed["failed_step"], listed["last_error"]) == (found.failed_step, found.error)


def test_a_run_in_error_says_where_and_why_and_may_go_on(sas, both):
    toy.BETA.on_perform = refuse
    run = sas.start("both", {"n": 1})

    found = settle(run.key)
    assert (found.state, found.succeeded, found.failed_step) == ("Error", False, "beta-step")
    assert "the address does not exist" in found.error
    assert found.results == {"alpha-step": {"n": 1}}

    toy.BETA.on_perform = None
    operator_verbs.resubmit(run.key, by="ada", reason="mended")
    sas.advance("1m")
    assert settle(run.key).succeeded


def test_an_undo_that_fails_is_named_as_one(sas, both):
    def refuse(request):
        raise PermanentFailure("no refund")

    toy.ALPHA.on_compensate = refuse
    toy.BETA.on_perform = lambda request: operator_verbs.cancel(request.run_key, by="ada", reason="no longer wanted") and None
    run = sas.start("both", {"n": 1})
    sas.advance("1m")

    found = settle(run.key)
    assert (found.state, found.failed_step) == ("Error", "undo:alpha-step")


def test_a_cancelled_run_is_at_rest(sas, both):
    run = sas.submit("both", {"n": 1})
    consuming.consume_batch(born=False)
    operator_verbs.cancel(run.key, by="ada", reason="no longer wanted")

    assert (settle(run.key).state, settle(run.key).results) == ("Cancelled", {})


def test_the_state_is_told_from_the_submission_on(sas, flow):
    flow(paid())
    run = sas.submit("waiting", {"n": 1})
    assert supervision.state(run.key) == "Pending"
    sas.run()
    assert supervision.state(run.key) == asyncio.run(supervision.astate(run.key)) == "Processing"


# ------------------------------------------------------------------------------------------- unknown, unreadable


@pytest.mark.parametrize("key", ["unknown", "", "\x00", "\ud800", 7])
def test_an_unknown_key_is_refused_at_once_and_by_name(sas, key):
    for ask in (supervision.state, supervision.result):
        with pytest.raises(UnknownRun, match="is known"):
            ask(key)
    for ask in (supervision.astate, supervision.aresult):
        with pytest.raises(UnknownRun, match="is known"):
            asyncio.run(ask(key))


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf")])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(sas, timeout):
    with pytest.raises(ValueError, match="timeout: expected seconds, 0 or more"):
        supervision.result("k", timeout=timeout)
    with pytest.raises(ValueError, match="timeout: expected seconds, 0 or more"):
        asyncio.run(supervision.aresult("k", timeout=timeout))


def test_a_submission_that_cannot_be_read_is_told_as_one(sas, both):
    key = testing.submit("both", {"n": 1})
    with connection.cursor() as cursor:
        cursor.execute("UPDATE supervision_submission SET payload = '[1]'")
    consuming.consume_batch(born=False)

    with pytest.raises(UnreadableSubmission, match="is a dead letter: expected a JSON object"):
        supervision.result(key)
    with pytest.raises(UnreadableSubmission, match="is a dead letter: expected a JSON object"):
        asyncio.run(supervision.aresult(key))
    assert supervision.state(key) == "Pending"


# ---------------------------------------------------------------------------------------------------- waiting


def test_a_thread_waits_until_the_run_has_ended(sas, both, looks):
    run = sas.submit("both", {"n": 3})
    worker = after_a_look(looks, sas.run)
    found = supervision.result(run.key, timeout=20)
    worker.join()

    assert (found.state, found.results["alpha-step"]) == ("Processed", {"n": 3})


def test_when_the_time_is_over_the_run_goes_on(sas, both):
    run = sas.submit("both", {"n": 3})
    for wait in (lambda: supervision.result(run.key, timeout=0.1), lambda: asyncio.run(supervision.aresult(run.key, timeout=0.1))):
        with pytest.raises(TimeoutError, match=f"order {run.key!r} has not ended within 0.1 s; it goes on"):
            wait()
    with pytest.raises(TimeoutError):
        asyncio.run(supervision.aresult(run.key, timeout=0))
    sas.run()
    assert settle(run.key).succeeded


def test_inside_a_transaction_no_caller_waits_for_what_cannot_begin(sas, both):
    with transaction.atomic():
        run = sas.submit("both", {"n": 3})
        assert supervision.state(run.key) == "Pending"
        with pytest.raises(SupervisionError, match="a transaction is open: wait for it after the transaction"):
            supervision.result(run.key)
        with pytest.raises(UnknownRun):  # a coroutine looks from outside of the transaction
            asyncio.run(supervision.aresult(run.key))
    sas.run()
    with transaction.atomic():
        assert supervision.result(run.key).succeeded


def test_coroutines_share_one_connection_and_block_no_event_loop(sas, both, looks, monkeypatch):
    runs = [sas.submit("both", {"n": n}) for n in range(200)]
    before = connections()
    look, ticked, seen = results._look, threading.Event(), []

    def look_once_the_loop_has_gone_on(keys):
        assert ticked.wait(20), "the event loop did not go on during a look"
        return look(keys)

    monkeypatch.setattr(results, "_look", look_once_the_loop_has_gone_on)

    async def ticks():
        while True:
            ticked.clear()
            await asyncio.sleep(0.005)
            ticked.set()
            await asyncio.sleep(0.005)

    async def main():
        ticking = asyncio.create_task(ticks())
        waiting = [asyncio.create_task(supervision.aresult(run.key, timeout=60)) for run in runs]
        await asyncio.to_thread(until, lambda: {key for keys in looks for key in keys} == {run.key for run in runs})
        seen.append(await asyncio.to_thread(counted))
        worker = after_a_look(looks, sas.run)
        found = await asyncio.gather(*waiting)
        ticking.cancel()
        await asyncio.to_thread(worker.join)
        return found

    def counted():
        try:
            return connections()
        finally:
            connection.close()

    found = asyncio.run(main())

    assert [one.results["alpha-step"]["n"] for one in found] == list(range(200))
    assert seen[0] <= before + 2  # the one that looks, and this test's own in place of the thread that counts
    assert results._looks._waiting == set()


def test_the_connection_is_given_back_when_no_caller_waits(sas, both):
    run = sas.start("both", {"n": 1})
    asyncio.run(supervision.aresult(run.key))
    assert "results" in threads()
    until(lambda: "results" not in threads(), within=10)

    assert results._looks._loop is None
    assert asyncio.run(supervision.aresult(run.key)).succeeded


@pytest.mark.parametrize(("ask", "instead"), [(supervision.state, "astate"), (supervision.result, "aresult")])
def test_a_call_that_would_block_the_event_loop_is_refused(sas, both, monkeypatch, ask, instead):
    run = sas.start("both", {"n": 1})
    monkeypatch.delenv("DJANGO_ALLOW_ASYNC_UNSAFE")

    async def main():
        ask(run.key)

    with pytest.raises(SynchronousOnlyOperation, match=f"Await supervision.{instead} instead"):
        asyncio.run(main())


def test_a_coroutine_that_is_cancelled_is_forgotten(sas, both, looks):
    run = sas.submit("both", {"n": 1})

    async def main():
        task = asyncio.create_task(supervision.aresult(run.key, timeout=30))
        await asyncio.to_thread(until, lambda: looks)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    until(lambda: not results._looks._waiting, within=20)


def test_waiters_survive_a_database_that_ends_their_connection(sas, both, looks):
    run = sas.submit("both", {"n": 1})

    async def main():
        task = asyncio.create_task(supervision.aresult(run.key, timeout=30))
        await asyncio.to_thread(until, lambda: looks)
        assert await asyncio.to_thread(cut) == 1
        worker = after_a_look(looks, sas.run)
        found = await task
        await asyncio.to_thread(worker.join)
        return found

    def cut():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND query LIKE '%%supervision_archivedrun a ON a.key%%' AND pid <> pg_backend_pid()"
            )
            ended = cursor.rowcount
        connection.close()
        return ended

    assert asyncio.run(main()).succeeded


def test_an_async_view_under_asgi_awaits_a_run(sas, both, looks, settings):
    settings.ROOT_URLCONF, settings.MIDDLEWARE = __name__, []
    get_asgi_application()
    run = sas.submit("both", {"n": 5})

    async def main():
        client = AsyncClient()
        late = await client.get(f"/results/{run.key}/?timeout=0.1")
        worker = after_a_look(looks, sas.run)
        answers = await asyncio.gather(*[client.get(f"/results/{run.key}/") for _ in range(20)])
        await asyncio.to_thread(worker.join)
        return late, answers

    late, answers = asyncio.run(main())
    assert late.status_code == 504
    assert {json.loads(answer.content)["state"] for answer in answers} == {"Processed"}


def test_later_looks_come_less_often():
    waiting = results._Waiting("k", results.Future())
    pauses = []
    for age in (0, 0.1, 1, 5, 10, 3600):
        waiting.began = time.monotonic() - age
        pauses.append(round(waiting.pause(), 2))
    assert pauses == [0.02, 0.02, 0.1, 0.5, 1.0, 1.0]
