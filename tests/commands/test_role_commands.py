"""The commands of the roles: work starts a worker with its queues; schedule and supervise make one pass, or loop."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError

from supervision import testing
from supervision.management.commands import supervise, work
from supervision.management.commands.work import agent_queues
from supervision.models import DeadLetter, Receipt
from supervision.recovery import upkeep
from tests.commands.conftest import Manage
from tests.shopping import place

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]
# `manage.py` that ends by telling which of these it had imported: the console, the API and what they draw documents with.
TELLING = """
import atexit, sys
from manage import main
pages = ("sasproject.urls", "supervision.admin", "orders.admin", "orders.api.urls", "fontTools")
told = sys.stdout  # a worker sends what is printed to its log
atexit.register(lambda: told.write("\\n" + " ".join(["imported:", *[name for name in pages if name in sys.modules]]) + "\\n"))
sys.argv[0] = "manage.py"
main()
"""


def test_schedule_consumes_then_claims_and_says_how_much(manage: Manage, mug: object):
    place()
    place()

    assert manage("schedule", "--once").json == {"consumed": 2, "dead_letters": 0, "claimed": 2, "dispatched": 1}
    assert manage("schedule", "--once").json == {"consumed": 0, "dead_letters": 0, "claimed": 0, "dispatched": 0}


def test_schedule_counts_what_it_could_not_read(manage: Manage, db: None):
    testing.submit("no-such-workflow", {})

    assert manage("schedule", "--once").json["dead_letters"] == 1
    assert DeadLetter.objects.count() == 1


def test_supervise_finds_the_overdue_and_says_what_it_did(manage: Manage, an_order: str):
    testing.expire(an_order)

    report = manage("supervise", "--once").json

    assert list(report) == ["overdue", "retried", "redispatched", "waiting", "compensating", "errors", "relayed"]
    assert report["overdue"] == 1
    assert report["redispatched"] == 1
    assert testing.step(an_order, "reserve-stock").dispatch_count == 1


def test_the_supervisor_without_beat_does_what_its_task_does(db: None, monkeypatch: pytest.MonkeyPatch):
    for name in ("wake", "stop"):
        monkeypatch.setattr(supervise.delivery_worker, name, lambda *_: None)
    monkeypatch.setattr(upkeep, "_tidied", float("-inf"))
    done: list[str] = []
    monkeypatch.setattr(upkeep.linking, "turn", lambda: done.append("history"))
    monkeypatch.setattr(supervise.working, "relay", lambda: done.append("jobs"))
    Receipt.objects.create(digest="old")
    Receipt.objects.update(seen_at="2020-01-01T00:00Z")
    Receipt.objects.create(digest="new")

    supervise.Command().one_round()

    assert list(Receipt.objects.values_list("digest", flat=True)) == ["new"]
    assert done == ["history", "jobs"]


def test_supervise_says_so_when_there_is_nothing_to_do(manage: Manage, db: None):
    assert set(manage("supervise", "--once").json.values()) == {0}


def test_agents_serve_every_registered_agent_unless_some_are_named(settings):
    settings.SUPERVISION = {**settings.SUPERVISION, "PARTITIONS": {"payment": 4}}

    assert {"agent.email", "agent.child", "agent.payment", "agent.shipping", "agent.stock"} <= set(agent_queues())
    assert agent_queues("payment") == ["agent.payment"]
    assert agent_queues("agent.stock, payment.2") == ["agent.stock", "agent.payment.2"]  # as AGENT_QUEUES names them


@pytest.mark.parametrize("name", ["paymnt", "payment.4", "stock.0", ""])
def test_an_agent_that_no_workflow_has_is_refused_and_the_others_are_named(name: str, settings):
    settings.SUPERVISION = {**settings.SUPERVISION, "PARTITIONS": {"payment": 4}}

    with pytest.raises(CommandError, match=f"no agent named '{name}' is registered; there are: .*payment.*stock"):
        agent_queues(f"stock,{name}")


def test_only_belongs_to_the_agents(manage: Manage):
    with pytest.raises(CommandError, match="--only belongs to the role agents"):
        manage("work", "scheduler", "--only", "payment")


def test_an_unknown_level_of_the_log_is_refused_and_the_levels_are_named(manage: Manage):
    with pytest.raises(CommandError, match=r"--loglevel: invalid choice: 'CHATTY' \(choose from .*WARNING.*DEBUG"):
        manage("work", "scheduler", "--loglevel", "chatty")


def test_the_log_leaves_messages_and_tasks_out_unless_the_project_wants_them(monkeypatch):
    theirs, ours = "celery.app.trace", "celery.worker.strategy"
    for name, level in ((theirs, logging.DEBUG), (ours, logging.NOTSET)):
        monkeypatch.setattr(logging.getLogger(name), "level", level)

    work.quieten()

    assert logging.getLogger(theirs).level == logging.DEBUG
    assert logging.getLogger(ours).level == logging.WARNING


@pytest.mark.parametrize(
    ("role", "queues"),
    [
        pytest.param("scheduler", {"submissions", "scheduler"}, marks=pytest.mark.nightly),
        pytest.param("supervisor", {"supervisor"}, marks=pytest.mark.nightly),
        ("agents", {"agent.email", "agent.child", "agent.payment", "agent.shipping", "agent.stock"}),
    ],
)
def test_a_role_is_a_worker_on_its_queues_that_ends_with_sigterm_and_imports_no_page(role: str, queues: set[str]):
    worker = subprocess.Popen(
        [sys.executable, "-c", TELLING, "work", role],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = []
    for line in worker.stdout:
        said.append(line)
        if " ready." in line:
            worker.send_signal(signal.SIGTERM)
    text = "".join(said)
    assert worker.wait(30) == 0, text
    assert f"{role}-{worker.pid}@" in text
    assert set(re.findall(r"> (\S+) +exchange", text)) == queues
    assert "imported:\n" in text, text


def python(code: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=90)


@pytest.mark.parametrize("role", ["scheduler", "beat"])
def test_a_role_refuses_settings_that_contradict_each_other(role: str):
    refused = python(TELLING, "work", role, FAILPOINTS="agent.before_call", ALLOW_FAILPOINTS="0")

    assert refused.returncode == 1
    assert "supervision.E006" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_command_of_the_engine_imports_no_page_and_check_looks_at_each():
    assert python(TELLING, "workflows").stdout.endswith("imported:\n")
    assert "supervision.admin" in python(TELLING, "check", "--tag", "admin").stdout


# What grows when the pages are loaded: module, name and by how much.
REGISTERED_BY_PAGES = """
import sys
import django
django.setup()
def sizes():
    return {
        (module, name): len(value)
        for module, found in list(sys.modules.items()) if module.partition(".")[0] in ("supervision", "orders", "sasproject")
        for name, value in list(vars(found).items()) if isinstance(value, (dict, list, set)) and not name.startswith("__")
    }
before = sizes()
from django.urls import get_resolver
get_resolver().url_patterns
after = sizes()
print([(*key, after[key] - size) for key, size in before.items() if after[key] != size])
"""


def test_nothing_that_registers_itself_needs_a_page():
    done = python(REGISTERED_BY_PAGES)

    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_the_console_s_own_pages_replace_those_of_packages_whatever_is_imported_first():
    order = "import django; django.setup(); import sasproject.admin, sasproject.urls; from django.contrib import admin"
    done = python(
        f"{order}; print({{type(page).__module__ for model, page in admin.site._registry.items() if model.__name__ == 'AuthToken'}})"
    )

    assert done.stdout == "{'sasproject.admin'}\n", done.stdout + done.stderr
