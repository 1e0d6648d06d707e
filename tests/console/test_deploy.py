"""C7: the examples in deploy/ name only what exists, and the autoscaling script follows the recommended consumers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from django.conf import settings
from django.db import connection
from django.test import Client
from django.urls import resolve
from prometheus_client.parser import text_string_to_metric_families

from sasproject import database_roles
from sasproject.roles import procfile
from supervision.agent import agents
from supervision.insight import autoscaling
from supervision.intake import consuming
from supervision.models import Resource
from supervision.testing import submit_many
from tests import services
from tests.commands.test_command_line import database_url
from tests.console.test_image import COMPOSE
from tests.console.test_kubernetes import objects, pods

ROOT = Path(settings.BASE_DIR)
SYSTEMD = ROOT / "deploy" / "systemd"
OURS = ["child", "email", "payment", "shipping", "stock"]
UNITS = sorted(path.name for path in SYSTEMD.iterdir() if path.suffix in (".service", ".timer", ".target"))


def samples(text: str) -> dict[tuple[str, str | None], float]:
    return {
        (sample.name, sample.labels.get("agent")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_role_of_the_procfile_has_its_pods_and_every_agent_its_own():
    roles = {container["args"][0] for pod in pods().values() for container in pod["containers"]}
    served = sorted(args[1] for pod in pods().values() if len(args := pod["containers"][0]["args"]) > 1)

    assert roles == set(procfile())
    assert served == OURS


def test_probes_ask_addresses_that_exist_under_a_name_that_is_allowed():
    config = next(document["data"] for document in objects("ConfigMap"))
    allowed = config["ALLOWED_HOSTS"].split(",")
    (container,) = pods()["web"]["containers"]
    probes = {name: probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")}

    assert set(probes) == {"startupProbe", "livenessProbe", "readinessProbe"}
    for probe in probes.values():
        assert resolve(probe["path"])
        assert probe["httpHeaders"][0]["value"] in allowed
    for trigger in triggers("metrics-api"):
        assert re.match(r"http://([^:/]+)", trigger["url"])[1] in allowed  # type: ignore[index]


def triggers(kind: str) -> list[dict[str, str]]:
    return [trigger["metadata"] for item in objects("ScaledObject") for trigger in item["spec"]["triggers"] if trigger["type"] == kind]


def test_the_roles_that_call_outside_may_reach_each_port_that_a_webhook_may_have():
    policies = list(yaml.safe_load_all((ROOT / "deploy/kubernetes/base/network.yaml").read_text()))
    ports = {port["port"] for policy in policies for rule in policy["spec"].get("egress", []) for port in rule.get("ports", [])}

    assert set(settings.WEBHOOK_PORTS) <= ports


def test_what_is_scaled_exists_and_sets_no_number_of_its_own():
    scaled = [item["spec"]["scaleTargetRef"]["name"] for item in objects("ScaledObject")]
    numbers = {document["metadata"]["name"]: document["spec"].get("replicas") for document in objects("Deployment")}

    assert sorted(scaled) == sorted([*(f"agents-{name}" for name in OURS), "scheduler"])
    assert all(numbers[name] is None for name in scaled)  # applying the files again must not undo what KEDA decided


@pytest.mark.django_db
def test_the_metrics_that_keda_reads_are_told(client: Client):
    told = samples(client.get("/metrics").content.decode())

    for trigger in triggers("metrics-api"):
        assert resolve(trigger["url"].partition(":8000")[2])
        name, agent = re.fullmatch(r'(\w+)\{agent="(\w+)"\}', trigger["valueLocation"]).groups()  # type: ignore[union-attr]
        assert (name, agent) in told
    assert len(triggers("metrics-api")) == len(OURS)


@pytest.mark.django_db
def test_the_queries_that_keda_asks_are_answered_with_a_number():
    assert triggers("postgresql")
    for trigger in triggers("postgresql"):
        with connection.cursor() as cursor:
            cursor.execute(trigger["query"])
            ((answer,),) = cursor.fetchall()
        assert isinstance(answer, int)


@pytest.mark.django_db
def test_the_metrics_that_the_page_names_are_told(client: Client):
    Resource.objects.get_or_create(name="payment")
    told = {name for name, _agent in samples(client.get("/metrics").content.decode())}
    page = (ROOT / "deploy" / "README.md").read_text()
    prefix, roles = database_roles.DEFAULT_PREFIX, database_roles.ROLES
    named = set(re.findall(r"\bsas_[a-z_]+", page)) - {database_roles.name(prefix, role) for role in roles}

    # Without a limited resource the gauge has no sample. The others are roles of the database.
    assert named - told <= {"sas_resource_capacity", "sas_web", "sas_worker", "sas_migrate", "sas_read"}
    assert {f"sas_agent_{name}" for name in autoscaling.Load.__annotations__ if name != "agent"} <= named


def test_the_variables_that_the_examples_set_are_explained():
    operations = (ROOT / "docs" / "operations.md").read_text()
    given = {name for document in objects("ConfigMap") for name in document["data"]}
    given |= {name for service in yaml.safe_load(COMPOSE.read_text())["services"].values() for name in service.get("environment", {})}
    given -= {"POSTGRES_DB", "POSTGRES_PASSWORD_FILE"}
    given |= set(re.findall(r"^([A-Z_]+)=", (SYSTEMD / "sas.env.example").read_text(), re.MULTILINE))

    assert [name for name in sorted(given) if name.isupper() and f"`{name}`" not in operations] == []


def test_each_example_sets_what_a_shop_needs_to_reach_people():
    needed = {"ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "PUBLIC_URL", "TRUST_PROXY", "DEFAULT_FROM_EMAIL", "OPERATOR_EMAILS"}
    of_systemd = set(re.findall(r"^([A-Z_]+)=", (SYSTEMD / "sas.env.example").read_text(), re.MULTILINE))
    assert needed - of_systemd == set()
    assert needed - {name for document in objects("ConfigMap") for name in document["data"]} == set()
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert [needed - set(services[role]["environment"]) for role in ("web", "supervisor")] == [set(), set()]


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The systemd units as installed, with this checkout instead of /opt/sas."""
    services.require_service("systemd-analyze", shutil.which("systemd-analyze"), "apt-get install systemd")
    for name in UNITS:
        text = (SYSTEMD / name).read_text().replace("/opt/sas", str(ROOT)).replace("User=sas", "User=root")
        (tmp_path / name).write_text(text)
    return tmp_path


def analyze(units: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], cwd=units, capture_output=True, text=True, timeout=60, check=False)


def test_systemd_finds_nothing_wrong_with_the_units(units: Path):
    said = analyze(units, "verify", "--man=no", *(f"./{name}" for name in UNITS))

    complaints = [line for line in said.stderr.splitlines() if "sas" in line]
    assert (said.returncode, complaints) == (0, [])


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_each_unit_is_exposed_to_little(units: Path, name: str):
    unit = name.replace("@.", "@1.")
    (units / name).rename(units / unit)
    if "autoscale" not in name:  # `units` replaced the user, who does not exist here
        (units / unit).write_text((units / unit).read_text().replace("User=root", "User=nobody"))

    said = analyze(units, "security", "--offline=true", "--threshold=30", f"./{unit}")

    assert said.returncode == 0, said.stdout[-400:]


def test_the_target_starts_every_role_and_every_agent():
    wanted = set(re.findall(r"sas-\S+", (SYSTEMD / "sas.target").read_text()))
    files = {re.sub(r"@[^.]*\.", "@.", name) for name in wanted}

    assert files <= set(UNITS)
    assert {f"sas-agents@{name}:1.service" for name in OURS} <= wanted
    roles = {re.search(r"deploy/role (\w+)", (SYSTEMD / name).read_text())[1] for name in files if "autoscale" not in name}  # type: ignore[index]
    assert roles == set(procfile())


def test_a_role_is_the_procfiles_line_with_the_queue_of_its_agent(tmp_path: Path):
    checkout = tmp_path / "sas"
    (checkout / "deploy").mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "role", checkout / "deploy")
    (checkout / "Procfile").write_text('web: exec echo web\nagents: exec echo "$SAS_ROLE: queues ${AGENT_QUEUES:-all}"\n')

    def say(*arguments: str) -> tuple[int, str]:
        said = subprocess.run([str(checkout / "deploy" / "role"), *arguments], capture_output=True, text=True, check=False)
        return said.returncode, (said.stdout + said.stderr).strip()

    assert say("web") == (0, "web")
    assert say("agents") == (0, "agents: queues all")
    assert say("agents", "payment:2") == (0, "agents-payment: queues agent.payment")
    assert say("no-such-role")[0] == 2
    assert "there are: web agents" in say("no-such-role")[1]
    assert all(f"agent.{name}" in {agent.queue for agent in agents()} for name in OURS)


SYSTEMCTL = """#!/bin/sh
# Stands in for systemctl: the units that "run" are the lines of a file.
verb=$1; shift
case "$verb" in
    list-units) while read -r unit; do echo "$unit loaded active running Orders"; done < "$UNITS" ;;
    start) shift; for unit; do echo "$unit" >> "$UNITS"; done ;;
    stop) shift; for unit; do grep -vxF "$unit" "$UNITS" > "$UNITS.new" || true; mv "$UNITS.new" "$UNITS"; done ;;
esac
"""


@pytest.fixture
def autoscale(tmp_path: Path) -> Callable[..., set[str]]:
    """`autoscale("--max", "3")`: one run of the script against this database; returns the units that run afterwards."""
    (tmp_path / "systemctl").write_text(SYSTEMCTL)
    (tmp_path / "systemctl").chmod(0o755)
    state = tmp_path / "units"
    state.write_text("")

    def run(*arguments: str, database: str = "") -> set[str]:
        said = subprocess.run(
            [sys.executable, str(SYSTEMD / "autoscale"), *arguments],
            env={
                **os.environ,
                "PATH": f"{tmp_path}:{os.environ['PATH']}",
                "UNITS": str(state),
                "DATABASE_URL": database or database_url(connection.settings_dict["NAME"]),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert said.returncode == (1 if database else 0), said.stderr
        return set(state.read_text().split())

    return run


def test_the_script_follows_the_figure_up_at_once_and_down_one_by_one(engine: None, autoscale: Callable[..., set[str]]):
    submit_many("toy-plain", [{"n": n} for n in range(1200)])  # 1,200 s of work in 10 s: 120 calls, 4 consumers of 32
    while consuming.consume_batch(born=False).consumed:
        pass
    one_each = {f"sas-agents@{agent}:1.service" for agent in [*OURS]}

    up = autoscale("--target-seconds", "10", "--max", "3")

    assert one_each | {f"sas-agents@alpha:{n}.service" for n in (1, 2, 3)} <= up
    assert "sas-agents@alpha:4.service" not in up
    calm = autoscale("--target-seconds", "1000")
    assert up - calm == {"sas-agents@alpha:3.service"}
    assert autoscale(database="postgres://user@127.0.0.1:1/nothing") == calm  # no answer, no change
