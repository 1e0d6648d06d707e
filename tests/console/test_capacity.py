"""The capacity sheet: its figures hold on a running shop, `doctor` compares them with the server, deploy/ follows them."""

from __future__ import annotations

import json
import time
from collections import Counter
from io import StringIO
from pathlib import Path

import psycopg
import pytest
import yaml
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection

from sasproject import capacity, doctor_probes
from supervision.agent import agents
from supervision.operations.doctor import Level
from supervision.worker import heartbeats
from tests.console.test_image import COMPOSE
from tests.console.test_kubernetes import objects
from tests.support.shop import open_shop

FEWEST = {"web": 2, "scheduler": 2, "supervisor": 2, "beat": 1}
SEEN = "SELECT split_part(application_name, ':', 2), count(*) FROM pg_stat_activity WHERE datname = current_database() GROUP BY 1"


def sheet(*arguments: str) -> dict[str, dict[str, dict[str, int]]]:
    out = StringIO()
    call_command("capacity", "--json", *arguments, stdout=out)
    return json.loads(out.getvalue())


@pytest.mark.nightly
@pytest.mark.amqp
@pytest.mark.timeout(540)
def test_a_running_shop_opens_no_more_connections_than_the_sheet_says(amqp_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(capacity, "broker_is_pgmq", lambda: False)
    computed = sheet("--processes", "web=1,scheduler=1,agents=1,supervisor=1,beat=1")["roles"]
    most: Counter[str] = Counter()

    def look(looker: psycopg.Connection[tuple[str, int]]) -> bool:
        for role, count in looker.execute(SEEN):
            most[role] = max(most[role], count)
        return most["supervisor"] > 5 and all(most[role] for role in capacity.ROLES)

    with open_shop(amqp_url, tmp_path) as shop, psycopg.connect(shop.database_url, autocommit=True) as looker:
        shop.manage("place_orders", "--count", "100")
        end = time.monotonic() + 4
        while time.monotonic() < end or not look(looker):
            look(looker)
            time.sleep(0.1)

    seen = {role: most[role] for role in capacity.ROLES}
    assert {role: count for role, count in seen.items() if count > computed[role]["connections"]} == {}
    workers = [role for role in capacity.ROLES if role != "web"]  # the pool of `web` is full under load alone
    assert sum(computed[role]["connections"] for role in workers) <= 2 * sum(seen[role] for role in workers)


def test_processes_follow_orders_and_the_time_of_a_call():
    quiet, slow = sheet("--orders-per-second", "1")["roles"], sheet("--orders-per-second", "200", "--call-seconds", "2")["roles"]

    assert {role: need["processes"] for role, need in quiet.items()} == {**FEWEST, "agents": len(agents())}
    # 600 calls at once are 19 processes of each of three agents; stock and child work in our own database, 200 in one task.
    assert slow["agents"]["processes"] >= 3 * 19
    assert all(need["connections"] == need["processes"] * capacity.connections(role) for role, need in slow.items())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "SAS_PROCESSES"),
        (["--orders-per-second", "0"], "above 0"),
        (["--orders-per-second", "nan"], "above 0"),
        (["--orders-per-second", "1", "--processes", "web=1"], "exclude"),
        (["--processes", "agent=1"], "names 'agent'"),
        (["--processes", "web"], "must look like web=2,agents=10"),
    ],
)
def test_nonsense_is_refused_with_its_name(arguments: list[str], words: str):
    with pytest.raises((CommandError, ImproperlyConfigured), match=words):
        call_command("capacity", *arguments)


@pytest.mark.django_db
def test_doctor_warns_where_the_server_cannot_hold_what_is_configured(monkeypatch: pytest.MonkeyPatch):
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('max_connections')::int")
        most = cursor.fetchone()[0]
    monkeypatch.setenv("SAS_PROCESSES", f"agents={most // capacity.connections('agents') + 1}")
    [warned] = doctor_probes.connections()
    monkeypatch.setenv("SAS_PROCESSES", "agents=1")
    [fine] = doctor_probes.connections()

    assert (warned.level, fine.level) == (Level.WARN, Level.OK)
    assert f"max_connections is {most}" in warned.message
    assert "max_connections = " in warned.advice


@pytest.mark.django_db
def test_doctor_warns_where_the_database_itself_takes_fewer_connections(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SAS_PROCESSES", "agents=1")
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER DATABASE "{connection.settings_dict["NAME"]}" CONNECTION LIMIT 3')
        [warned] = doctor_probes.connections()

    assert warned.level == Level.WARN
    assert warned.message.endswith("the database takes 3")
    assert "CONNECTION LIMIT" in warned.advice


@pytest.mark.django_db
def test_doctor_warns_where_the_role_takes_fewer_connections(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SAS_PROCESSES", "web=1,agents=1")
    both = capacity.connections("web") + capacity.connections("agents")
    with connection.cursor() as cursor:  # in the test's transaction
        cursor.execute("CREATE ROLE few_in_test LOGIN CONNECTION LIMIT 3; SET SESSION AUTHORIZATION few_in_test")
        [warned] = doctor_probes.connections()
        cursor.execute("RESET SESSION AUTHORIZATION; ALTER ROLE few_in_test SUPERUSER; SET SESSION AUTHORIZATION few_in_test")
        [fine] = doctor_probes.connections()
        cursor.execute("RESET SESSION AUTHORIZATION")

    assert (warned.level, fine.level) == (Level.WARN, Level.OK)
    assert warned.message == f"SAS_PROCESSES needs up to {both}, and the role few_in_test takes 3"
    assert warned.advice == f"ALTER ROLE few_in_test CONNECTION LIMIT {both + capacity.COMMANDS}, or -1"


@pytest.mark.django_db
def test_doctor_compares_each_database_role_with_its_own_processes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SAS_PROCESSES", "web=1,agents=2")
    of_web, of_worker = capacity.connections("web"), 2 * capacity.connections("agents")
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE ROLE of_test_migrate; ALTER TABLE django_migrations OWNER TO of_test_migrate;"
            f"CREATE ROLE of_test_web CONNECTION LIMIT {of_web + capacity.COMMANDS};"
            f"CREATE ROLE of_test_worker CONNECTION LIMIT {of_worker + capacity.COMMANDS - 1}"
        )
        [warned] = doctor_probes.connections()

    assert warned.message == f"SAS_PROCESSES needs up to {of_worker}, and the role of_test_worker takes {of_worker + capacity.COMMANDS - 1}"


@pytest.mark.django_db
def test_doctor_counts_the_living_where_nothing_is_configured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SAS_PROCESSES", raising=False)
    [before] = doctor_probes.connections()
    for number in range(200):
        heartbeats.beat("agents-payment", name=f"agents-payment@here-{number}")
    [after] = doctor_probes.connections()

    assert (before.level, after.level) == (Level.OK, Level.WARN)
    assert f"up to {capacity.connections('web') + 200 * capacity.connections('agents')}" in after.message


def test_deploy_configures_the_processes_that_it_starts():
    for overlay in ("production", "small"):
        (config,) = objects("ConfigMap", overlay=overlay)
        said = capacity.parsed(config["data"]["SAS_PROCESSES"], "SAS_PROCESSES")
        started: Counter[str] = Counter()
        most = {
            item["spec"]["scaleTargetRef"]["name"]: item["spec"]["maxReplicaCount"] for item in objects("ScaledObject", overlay=overlay)
        }
        for pod in objects("Deployment", "StatefulSet", overlay=overlay):
            name = pod["metadata"]["name"]
            started[name.partition("-")[0]] += most.get(name) or pod["spec"].get("replicas", 1)
        assert dict(started) == said, overlay
    environment = yaml.safe_load(COMPOSE.read_text())["services"]["web"]["environment"]
    assert set(capacity.parsed(environment["SAS_PROCESSES"], "SAS_PROCESSES").values()) == {1}


def test_the_page_has_the_figures_of_the_code():
    page = (Path(settings.BASE_DIR) / "docs" / "capacity.md").read_text()

    for role, memory in capacity.MEMORY.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{role}` |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        total = int(cells[1].rpartition(":")[2])
        queues = capacity._QUEUES[role] if capacity.broker_is_pgmq() else 0
        assert (total + queues, int(cells[2])) == (capacity.connections(role), memory), role
        assert float(cells[3]) == capacity.CPU_MS.get(role, 0.1)
