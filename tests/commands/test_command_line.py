"""Every command as started from a shell: its help, one line for a mistake, loops that end cleanly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.db import connection

from chaos.shop import scratch_database
from supervision.management.base import Command
from supervision.management.progress import Progress
from supervision.postgres import advice, params
from tests.support import forked

MANAGE = [sys.executable, str(Path(settings.BASE_DIR) / "manage.py")]
OURS = sorted(name for name, app in get_commands().items() if app in ("orders", "supervision"))
NEWEST = sorted(path.stem for path in (Path(settings.BASE_DIR) / "supervision" / "migrations").glob("0*.py"))
NOWHERE = "postgres://user@127.0.0.1:1/nothing"
AWAY = "no database is running at 127.0.0.1:1/nothing: start ./run demo, or set DATABASE_URL=postgres://"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CELERY_BROKER_URL": "pgmq://", **environment}
    return forked.run([*MANAGE, *arguments], env=env, timeout=60)


@pytest.mark.parametrize("name", OURS)
def test_every_command_explains_itself(name: str):
    command = load_command_class(get_commands()[name], name)
    parser = command.create_parser("manage.py", name)

    assert len(command.help) > 40
    assert command.help in parser.description
    for action in parser._actions:
        assert action.help or action.metavar or action.dest, action


@pytest.mark.parametrize(
    "arguments",
    [
        ("orders",),
        ("order", "x"),
        ("resubmit", "x", "--reason", "y"),
        ("place_orders", "--count", "1"),
        ("queue_depth",),
        ("workflows",),
        ("dead_letters",),
        ("audit",),
        ("schedule", "--once"),
        ("supervise", "--once"),
        ("set_stock", "X", "1"),
        ("work", "all"),
    ],
)
def test_a_database_that_is_away_is_one_line(arguments: tuple[str, ...]):
    said = run(*arguments, DATABASE_URL=NOWHERE)

    assert said.returncode == 1
    assert "Traceback" not in said.stderr + said.stdout
    assert AWAY in said.stderr.splitlines()[-1]
    assert said.stdout == ""


@pytest.mark.django_db
def test_a_server_that_refuses_the_connection_is_not_said_to_be_away():
    own = params.libpqs(connection.get_connection_params())
    place = {name: quote(str(own.get(name) or ""), safe="") for name in ("user", "password", "host")}
    url = "postgres://{user}:{password}@{host}:{port}/never_made".format(**place, port=own.get("port") or 5432)

    [told] = run("orders", DATABASE_URL=url).stderr.splitlines()[-1:]
    doctor = run("doctor", DATABASE_URL=url).stdout

    assert re.search(r"/never_made says .*never_made.*: the server runs and refuses this connection", told)
    assert "no database is running" not in told
    [finding] = [line for line in doctor.splitlines() if line.startswith("fail  database:")]
    assert finding.endswith(advice.ANSWERED)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("place_orders",), "one of the arguments --count --file is required"),
        (("set_stock", "X", "3x"), "invalid whole number of at least 0"),
        (("resubmit", "x"), "the following arguments are required: --reason"),
        (("orders", "--state", "Broken"), "invalid choice"),
    ],
)
def test_a_mistake_is_one_line_and_a_non_zero_exit(arguments: tuple[str, ...], complaint: str):
    said = run(*arguments, DATABASE_URL=NOWHERE)

    assert said.returncode == 2
    assert len(said.stderr.splitlines()) == 1
    assert complaint in said.stderr
    assert "--help explains" in said.stderr


def test_the_doctor_works_without_a_database():
    said = run("doctor", DATABASE_URL=NOWHERE)

    assert said.returncode == 1
    assert "fail  database: " in said.stdout
    assert "DATABASE_URL" in said.stdout
    assert "Traceback" not in said.stderr


@pytest.fixture
def nothing_yet() -> Iterator[str]:
    """The URL of a database without tables."""
    with scratch_database() as url:
        yield url


def test_a_database_without_tables_says_what_to_do(nothing_yet: str):
    said = run("orders", DATABASE_URL=nothing_yet)

    assert said.returncode == 1
    assert said.stderr.splitlines()[-1].endswith("run manage.py migrate")


@pytest.mark.parametrize(
    ("migrate", "told"),
    [((), r"migrations, the first is \w+\.0001\w*"), (("supervision", NEWEST[-2]), f"the migration supervision.{NEWEST[-1]}")],
)
def test_all_roles_in_one_process_do_not_start_before_the_tables_are_there(nothing_yet: str, migrate: tuple[str, ...], told: str):
    if migrate:
        assert run("migrate", *migrate, DATABASE_URL=nothing_yet).returncode == 0

    said = run("work", "all", DATABASE_URL=nothing_yet)

    assert said.returncode == 1
    assert re.search(rf"/sas_shop_\w+ lacks .*{told}.*: run manage.py migrate$", said.stderr.splitlines()[-1])
    assert "Traceback" not in said.stderr + said.stdout
    assert said.stdout == ""


@pytest.mark.parametrize("name", ["schedule", pytest.param("supervise", marks=pytest.mark.nightly)])
def test_a_loop_outlives_an_outage_and_ends_at_sigterm(name: str, eventually: Callable[..., Any], tmp_path: Path):
    log = tmp_path / "log"
    with log.open("wb") as out:
        env = {**os.environ, "DATABASE_URL": NOWHERE, "CELERY_BROKER_URL": "pgmq://"}
        loop = forked.Popen([*MANAGE, name, "--loop", "--interval", "0.05"], env=env, stdout=out, stderr=out)
    try:
        eventually(lambda: log.read_text().count("trying again in 0.05 s") >= 2, within=90, what="a second try")
        loop.send_signal(signal.SIGTERM)
        assert loop.wait(40) == 0
    finally:
        loop.kill()
        loop.wait()
    assert "Traceback" not in log.read_text()


def database_url(name: str) -> str:
    """The URL of another database on the tests' server."""
    host, port, user, password = (connection.settings_dict[part] for part in ("HOST", "PORT", "USER", "PASSWORD"))
    credentials = f"{user}:{password}" if password else user
    return f"postgres://{credentials}@{str(host).replace('/', '%2F')}{f':{port}' if port else ''}/{name}"


class Terminal(StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_shown_on_a_terminal_and_nowhere_else():
    shown = {}
    for stream in (Terminal(), StringIO()):
        with Command(stderr=stream).progress(10, "orders") as progress:
            progress.advance(10)
        shown[type(stream)] = stream.getvalue()

    assert "orders [##############################] 10/10" in shown[Terminal]
    assert shown[StringIO] == ""


def test_progress_of_unknown_length_counts():
    stream = Terminal()
    command = Command(stderr=stream)
    with Progress(None, "events", stream=command.stderr) as progress:
        progress.advance(3)

    assert "events 3" in stream.getvalue()
