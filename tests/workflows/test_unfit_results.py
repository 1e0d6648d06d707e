"""Agents that return something that is no result: it is not changed in silence, and the step tells what to return."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction

from supervision import Agent, PermanentFailure, Step, testing
from supervision.agent import registered
from supervision.models import Alert, Effect
from supervision.postgres.backend.base import DatabaseWrapper
from supervision.store import step_verbs
from tests.support import toy
from tests.workflows.conftest import BETA

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
UNFIT = [
    (["card-1"], "a value of the type list"),
    ([], "a value of the type list"),
    ("card-1", "a value of the type str"),
    ("", "a value of the type str"),
    (False, "a value of the type bool"),
    (MappingProxyType({"card": 1}), "a value of the type mappingproxy"),
    ({"price": Decimal("1.50")}, "a dict that holds a value of the type Decimal"),
    ({"lines": [{"at": MOMENT}]}, "a dict that holds a value of the type datetime"),
    ({"ratio": float("nan")}, "a dict that JSON cannot hold (Out of range float"),
    ({(1, 2): "x"}, "a dict that JSON cannot hold (keys must be str"),
    ({"lines": [{"name": "cup\\\0"}]}, "a dict with a NUL character"),
    ({"cup\ud83d": 1}, "a dict with a NUL character, or half of a surrogate pair"),
]
NAMES = [f"{number}" for number in range(len(UNFIT))]
WHAT_TO_RETURN = "; return a dict of text, numbers, true, false, None, lists and dicts, for example str(amount) and moment.isoformat()"


class Answering(Agent):
    """Returns what a test gave it."""

    name = "answering"

    def __init__(self, given):
        self.given, self.calls = given, 0

    def perform(self, request):
        self.calls += 1
        request.intend("issue", key=request.idempotency_key, service="cards")
        return self.given

    def compensate(self, request):
        return self.given


class Clerk(Agent):
    """Works in this database only, and returns what a test gave it."""

    name, transactional, undoable = "clerk", True, False

    def __init__(self, given):
        self.given, self.calls = given, 0

    def perform_many(self, requests):
        self.calls += 1
        return [self.given for _ in requests]


def test_texts_that_only_look_like_such_characters_are_kept(sas, flow, monkeypatch):
    given = {"path": "C:\\u0000 \\\\ud83d", "cup": "\U0001f375", "hyphen": "a\u00adb"}
    monkeypatch.setitem(registered, "answering", Answering(given))
    flow(Step("issue", agent="answering", retry=toy.RETRY), BETA)

    assert sas.start("waiting").results["issue"] == given


def error_of(key, step):
    row = testing.step(key, step)
    [alert] = Alert.objects.filter(run__key=key, kind="error", closed_at__isnull=True)
    assert (row.process_state, row.attempt, alert.message) == ("Error", 1, row.last_error)
    return row.last_error


@pytest.mark.parametrize(("given", "what"), UNFIT, ids=NAMES)
@pytest.mark.parametrize("last", [True, False])
def test_what_is_no_result_ends_the_step_at_once_and_a_resubmission_keeps_the_key(sas, flow, monkeypatch, given, what, last):
    agent = Answering(given)
    monkeypatch.setitem(registered, "answering", agent)
    flow(Step("issue", agent="answering", retry=toy.RETRY), *(() if last else (BETA,)))
    run = sas.start("waiting")
    run.assert_state("Error")
    told = error_of(run.key, "issue")
    assert told.startswith(f"step issue: the agent answering returned {what}")
    assert told.endswith(WHAT_TO_RETURN)
    assert testing.step(run.key, "issue").effect == "unknown"  # the agent has done its work
    assert [row.outcome for row in Effect.objects.all()] == ["done"]
    before = testing.step(run.key, "issue").idempotency_key

    agent.given = {"card": "1"}
    run.resubmit()
    sas.run()
    run.assert_state("Processed")
    assert (run.results["issue"], testing.step(run.key, "issue").idempotency_key) == ({"card": "1"}, before)


@pytest.mark.parametrize(("given", "what"), UNFIT, ids=NAMES)
def test_what_a_transactional_agent_returns_wrongly_is_rolled_back_and_ends_the_step_at_once(sas, flow, monkeypatch, given, what):
    monkeypatch.setitem(registered, "clerk", Clerk(given))
    flow(Step("book", agent="clerk", retry=toy.RETRY))
    run = sas.start("waiting")
    run.assert_state("Error")
    assert error_of(run.key, "book").startswith(f"step book: the agent clerk returned {what}")
    assert testing.step(run.key, "book").effect == "none"


@pytest.mark.parametrize("given", [["x"], {"at": MOMENT}])
def test_what_an_undo_returns_wrongly_ends_it_at_once(sas, flow, monkeypatch, given):
    agent = Answering({})
    monkeypatch.setitem(registered, "answering", agent)
    flow(Step("issue", agent="answering", retry=toy.RETRY), BETA)
    sas.fake("beta-step", raises=ValueError("x"))
    run = sas.start("waiting")
    agent.given = given
    run.compensate()
    sas.run()
    run.assert_state("Error")
    assert testing.step(run.key, "issue", "undo").last_error.startswith("step undo:issue: the agent answering returned a ")
    agent.given = {}
    run.resubmit()
    sas.run()
    run.assert_state("Cancelled")


def test_one_unfit_result_does_not_stop_the_others_of_its_cohort(sas, flow, monkeypatch):
    agent = Answering({})
    agent.perform = lambda request: {"n": Decimal(1) if request.payload["n"] == 1 else request.payload["n"]}
    monkeypatch.setitem(registered, "answering", agent)
    flow(Step("issue", agent="answering", retry=toy.RETRY), BETA)
    runs = [sas.submit("waiting", {"n": n}) for n in range(3)]
    sas.run()
    assert [run.state for run in runs] == ["Processed", "Error", "Processed"]


@pytest.mark.parametrize("agent", ["answering", "clerk"])
def test_none_counts_as_an_empty_result(sas, flow, monkeypatch, agent):
    monkeypatch.setitem(registered, "answering", Answering(None))
    monkeypatch.setitem(registered, "clerk", Clerk(None))
    flow(Step("issue", agent=agent, retry=toy.RETRY))
    run = sas.start("waiting")
    run.assert_state("Processed")
    assert run.results == {"issue": {}}


def test_a_result_is_encoded_once(sas, flow, monkeypatch):
    encoded = []
    before = step_verbs.encode
    monkeypatch.setattr(step_verbs, "encode", lambda value: encoded.append(value) or before(value))
    monkeypatch.setitem(registered, "answering", Answering({"card": "1"}))
    flow(Step("issue", agent="answering", retry=toy.RETRY), Step("again", agent="answering", retry=toy.RETRY))
    sas.start("waiting").assert_state("Processed")
    assert encoded == [{"card": "1"}, {"card": "1"}]


class Forgetful(Agent):
    """Writes a group, and forgets to end its transaction as the payload says."""

    name, undoable = "forgetful", False

    def perform(self, request):
        if request.payload["opens"] == "block":
            transaction.atomic().__enter__()
        if request.payload["opens"] == "autocommit":
            transaction.set_autocommit(False)
        if request.payload["opens"] == "statement":
            connection.cursor().execute("BEGIN")
        if request.payload["opens"] == "elsewhere":
            transaction.atomic(using="elsewhere").__enter__()
        Group.objects.using("elsewhere" if request.payload["opens"] == "elsewhere" else None).create(name=request.run_key)
        if request.payload["fails"]:
            raise PermanentFailure("no")
        return {}


@pytest.fixture
def elsewhere(monkeypatch):
    """A second database, with a pool of one connection."""
    entry = connections.settings["default"]
    pool = {"min_size": 0, "max_size": 1, "timeout": 5}
    monkeypatch.setitem(connections.settings, "elsewhere", {**entry, "OPTIONS": {**entry["OPTIONS"], "pool": pool}})
    yield
    if made := DatabaseWrapper._connection_pools.pop("elsewhere", None):
        made.close()


@pytest.mark.parametrize("opens", ["block", "autocommit", "statement", "elsewhere"])
@pytest.mark.usefixtures("elsewhere")
def test_a_transaction_that_an_agent_leaves_open_is_rolled_back_and_harms_no_other_order(sas, flow, monkeypatch, opens):
    monkeypatch.setitem(registered, "forgetful", Forgetful())
    flow(Step("note", agent="forgetful", retry=toy.RETRY))
    left = [sas.start("waiting", {"opens": opens, "fails": fails}) for fails in (False, True)]
    good = [sas.start("waiting", {"opens": "", "fails": False}) for _ in range(3)]

    assert [run.state for run in left + good] == ["Error", "Error", "Processed", "Processed", "Processed"]
    assert error_of(left[0].key, "note").startswith("step note: the agent forgetful returned with a transaction open; what it wrote")
    assert (testing.step(left[0].key, "note").effect, error_of(left[1].key, "note")) == ("unknown", "no")
    assert set(Group.objects.filter(name__in=[run.key for run in left + good]).values_list("name", flat=True)) == {run.key for run in good}
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'")
        assert cursor.fetchone() == (0,)
    Group.objects.filter(name__in=[run.key for run in good]).delete()


class ForgetfulClerk(Clerk):
    """Works in this database, and leaves a block that it has entered as the payload says."""

    name = "forgetful clerk"

    def perform_many(self, requests):
        if any(request.payload["opens"] for request in requests):
            transaction.atomic().__enter__()
        Group.objects.bulk_create([Group(name=request.run_key) for request in requests])
        if any(request.payload["raises"] for request in requests):
            raise RuntimeError("no")
        return [{} for _ in requests]


def test_a_block_that_a_transactional_agent_leaves_open_is_rolled_back_and_harms_no_other_order(sas, flow, monkeypatch):
    monkeypatch.setitem(registered, "forgetful clerk", ForgetfulClerk({}))
    flow(Step("note", agent="forgetful clerk", retry=toy.RETRY))
    left = [sas.start("waiting", {"opens": True, "raises": raises}) for raises in (False, True)]
    good = [sas.start("waiting", {"opens": False, "raises": False}) for _ in range(3)]

    assert not connection.in_atomic_block
    assert [run.state for run in left + good] == ["Error", "Processing", "Processed", "Processed", "Processed"]
    assert error_of(left[0].key, "note").startswith("step note: the agent forgetful clerk returned with a transaction open; what it wrote")
    assert [testing.step(run.key, "note").effect for run in left] == ["none", "none"]
    assert testing.step(left[1].key, "note").last_error == "RuntimeError: no"
    assert set(Group.objects.filter(name__in=[run.key for run in left + good]).values_list("name", flat=True)) == {run.key for run in good}
    Group.objects.filter(name__in=[run.key for run in good]).delete()
