"""Statements that travel together, and a COMMIT that travels with the last one: errors and lost connections lose nothing."""

from __future__ import annotations

import pytest
from django.db import DataError, connection, transaction

from supervision.intake import consuming
from supervision.models import DeadLetter, Run
from supervision.postgres import db
from supervision.testing import run_until_idle, submit_many
from supervision.workflow import Workflow
from tests.engine import kit
from tests.engine.cutting import by_a_way_that_can_be_cut
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")
DIVIDES, COUNTS = ("SELECT 1 / %(n)s::int", {"n": 0}), ("SELECT count(*) FROM supervision_run", None)


@pytest.fixture(autouse=True)
def bare(engine):
    """A workflow whose application has no rows of its own, so that its runs are written and committed in one round trip."""
    kit.define(Workflow("bare", toy.steps()))


def test_the_first_error_is_raised_and_the_transaction_is_rolled_back():
    with pytest.raises(DataError), transaction.atomic():
        db.fetch_together(("INSERT INTO supervision_resource (name) VALUES ('x')", None), DIVIDES, COUNTS, commit=True)

    assert connection.get_autocommit()
    assert kit.fetch("SELECT count(*) FROM supervision_resource WHERE name = 'x'") == [(0,)]
    assert db.fetch_together(COUNTS) == [[(0,)]], "the connection goes on"


@pytest.mark.parametrize("unsent", [False, True])
def test_what_follows_is_in_the_same_transaction_also_after_a_value_that_cannot_be_sent(unsent):
    with transaction.atomic():
        if unsent:
            with pytest.raises(Exception, match="cannot adapt"):
                db.fetch_together(("SELECT %(n)s", {"n": object()}))
        db.fetch("INSERT INTO supervision_resource (name) VALUES ('x')")
        db.fetch("INSERT INTO supervision_resource (name) VALUES ('y')")
        transaction.set_rollback(True)

    assert connection.get_autocommit()
    assert kit.fetch("SELECT count(*) FROM supervision_resource WHERE name IN ('x', 'y')") == [(0,)]


def test_a_part_of_a_larger_transaction_does_not_commit():
    with transaction.atomic():
        with transaction.atomic():
            db.fetch_together(("SELECT 1", None), commit=True)
        assert connection.connection.info.transaction_status.name == "INTRANS"
        transaction.set_rollback(True)


def test_one_submission_that_cannot_be_written_harms_none_of_its_batch():
    kit.fetch("ALTER TABLE supervision_run ADD CONSTRAINT refused CHECK ((payload->>'n') IS DISTINCT FROM '2') NOT VALID")
    try:
        keys = submit_many("bare", [{"n": n} for n in range(5)])
        consuming.consume_batch()
        run_until_idle()
    finally:
        kit.fetch("ALTER TABLE supervision_run DROP CONSTRAINT refused")

    assert [kit.state(key) for n, key in enumerate(keys) if n != 2] == ["Processed"] * 4
    assert [letter.public_id for letter in DeadLetter.objects.all()] == [keys[2]]
    assert kit.healthy()


def test_a_connection_lost_after_the_commit_writes_no_run_twice():
    with kit.another_connection(autocommit=True) as observe, by_a_way_that_can_be_cut(observe) as lose:
        submit_many("bare", [{"n": n} for n in range(3)])
        cut = lose("SELECT count(*) > 0 FROM supervision_run")
        consuming.consume_batch()
        assert cut.cuts == 1

    assert Run.objects.count() == 3
    kit.expire_and_sweep()
    run_until_idle()
    assert set(Run.objects.values_list("process_state", flat=True)) == {"Processed"}
    assert kit.healthy()
