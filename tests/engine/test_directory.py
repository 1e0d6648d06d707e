"""The engine's own directory, which another application's commands use: runs by public id, waiting and archived ones too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError

from supervision import PermanentFailure, StepRequest, testing
from supervision.insight import directory
from supervision.insight.directory import Directory, Entry
from supervision.operations import archive
from tests.engine.kit import said
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(autouse=True)
def no_application() -> Iterator[None]:
    before = directory.current()
    directory.use(Directory())
    yield
    directory.use(before)


def refuse(request: StepRequest) -> None:
    raise PermanentFailure("no")


def shown(key: str) -> dict[str, Any]:
    return json.loads(said("order", key, "--json"))


def test_a_run_is_shown_before_it_is_taken_up_while_it_runs_and_archived():
    key = testing.submit("toy-plain", {"n": 1})
    assert (shown(key)["process_state"], shown(key)["steps"]) == ("Pending", [])

    testing.run_until_idle()
    ended = shown(key)
    assert (ended["workflow"], ended["process_state"]) == ("toy-plain", "Processed")
    assert [step["name"] for step in ended["steps"]] == [step.name for step in toy.PLAIN.steps]
    assert said("order", key).startswith(f"run {key}  workflow toy-plain\nstate Processed, direction do\n")

    assert sum(moved.runs for moved in archive.batches(timedelta(0))) == 1
    assert shown(key) == ended


def test_orders_lists_runs_the_newest_first_with_the_step_that_failed():
    first = testing.submit("toy-plain", {"n": 1})
    testing.run_until_idle()
    toy.BETA.on_perform = refuse
    second = testing.submit("toy-plain", {"n": 2})
    testing.run_until_idle()

    rows = json.loads(said("orders", "--json"))
    assert [(row["id"], row["process_state"]) for row in rows] == [(second, "Error"), (first, "Processed")]
    assert said("orders", "--state", "Error").splitlines()[1].startswith(f"{second}  toy-plain  Error")


def test_an_unknown_run_is_refused_in_one_line():
    with pytest.raises(CommandError, match=r"no order 'nothing': give its public id, as `manage.py orders` lists them"):
        said("resubmit", "nothing", "--reason", "why")


def test_an_application_finds_its_runs_by_its_own_names():
    class Named(Directory):
        def find(self, said: str) -> Entry | None:
            return super().find(key if said == "the first" else said)

    key = testing.submit("toy-plain", {"n": 1})
    directory.use(Named())

    assert said("cancel", "the first", "--reason", "not wanted") == "the first: Pending\n"
    testing.run_until_idle()
    assert testing.run_of(key).process_state == "Cancelled"
