"""C7: the examples in deploy/ name only what exists, and the autoscaling script follows the recommended consumers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import yaml
from django.conf import settings
from django.db import connection
from django.test import Client
from django.urls import resolve
from prometheus_client.parser import text_string_to_metric_families

from sasproject.roles import procfile
from supervision.agent import agents
from supervision.insight import autoscaling
from supervision.intake import consuming
from supervision.models import Resource
from supervision.testing import submit_many
from supervision.worker import lifecycle
from tests import services
from tests.commands.test_command_line import database_url
from tests.stack.test_settings import read

ROOT = Path(settings.BASE_DIR)
KUBERNETES, SYSTEMD = ROOT / "deploy" / "kubernetes", ROOT / "deploy" / "systemd"
OVERLAYS = ("production", "small")
OURS = ["child", "email", "payment", "shipping", "stock"]
UNITS = sorted(path.name for path in SYSTEMD.iterdir() if path.suffix in (".service", ".timer", ".target"))


@cache
def rendered(overlay: str) -> list[dict[str, Any]]:
    program = next((path for name in ("kubectl", "kustomize") if (path := shutil.which(name))), None)
    services.require_service("kustomize", program, "install kubectl or kustomize")
    words = ["kustomize"] if program and program.endswith("kubectl") else ["build"]
    command = [str(program), *words, str(KUBERNETES / "overlays" / overlay)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return list(yaml.safe_load_all(said.stdout))


def objects(*kinds: str, overlay: str = "production") -> list[dict[str, Any]]:
    return [document for document in rendered(overlay) if not kinds or document["kind"] in kinds]


def pods(*kinds: str, overlay: str = "production") -> dict[str, dict[str, Any]]:
    found = objects(*kinds or ("Deployment", "StatefulSet"), overlay=overlay)
    return {document["metadata"]["name"]: document["spec"]["template"]["spec"] for document in found}


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def samples(text: str) -> dict[tuple[str, str | None], float]:
    return {
        (sample.name, sample.labels.get("agent")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_manifest_is_used():
    for folder in (KUBERNETES / "base", *(KUBERNETES / "overlays").iterdir()):
        text = (folder / "kustomization.yaml").read_text()
        assert [
            path.name for path in folder.glob("*.yaml") if path.name not in (*re.findall(r"[\w-]+\.yaml", text), "kustomization.yaml")
        ] == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubernetes_knows_every_field(overlay: str):
    for document in objects(overlay=overlay):
        if document["apiVersion"].split("/")[0] not in ("keda.sh", "external-secrets.io"):  # their schemas come with the operators
            kubernetes_validate.validate(document, "1.33", strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_secret_is_applied_by_accident(overlay: str):
    text = yaml.safe_dump_all(objects(overlay=overlay))

    assert objects("Secret", overlay=overlay) == []
    assert not re.search(r"://[^/\s]*:[^/\s]*@|replace.me", text)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_pod_has_the_least_rights_and_bounds(overlay: str):
    for name, pod in pods("Deployment", "StatefulSet", "Job", overlay=overlay).items():
        bounds = pod["securityContext"]
        assert (bounds["runAsNonRoot"], bounds["runAsUser"], bounds["seccompProfile"]["type"]) == (True, 10001, "RuntimeDefault"), name
        assert pod["automountServiceAccountToken"] is False
        for container in containers(pod):
            given = container["securityContext"]
            assert (given["readOnlyRootFilesystem"], given["allowPrivilegeEscalation"]) == (True, False), name
            assert given["capabilities"] == {"drop": ["ALL"]}
            assert {*container["resources"]["requests"], *container["resources"]["limits"]} >= {"cpu", "memory"}
            assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/tmp", "/run/secrets/sas"}


def test_a_role_waits_for_the_migrations_of_its_image():
    (job,) = pods("Job").values()

    assert job["initContainers"][0]["command"][-2:] == ["migrate", "--no-input"]
    for pod in pods().values():
        assert "until python manage.py migrate --check" in pod["initContainers"][0]["command"][2]
        assert pod["initContainers"][0]["image"] == pod["containers"][0]["image"] == job["containers"][0]["image"]


def test_each_pod_gets_the_secrets_of_its_role_alone():
    """The files that the variables name come from the Secrets that External Secrets makes."""
    made = {item["spec"]["target"]["name"]: {row["secretKey"] for row in item["spec"]["data"]} for item in objects("ExternalSecret")}
    (config,) = objects("ConfigMap")
    wanted = {Path(path).name for name, path in config["data"].items() if name.endswith("_FILE")}

    for name, pod in pods("Deployment", "StatefulSet", "Job").items():
        (sources,) = [volume["projected"]["sources"] for volume in pod["volumes"] if volume["name"] == "secrets"]
        role = name.partition("-")[0]
        keys = {source["secret"]["name"]: source["secret"].get("items", [{}])[0].get("key") for source in sources}
        database = {"web": "web", "migrate": "migrate"}.get(role, "worker")
        assert keys == {"sas": None, "sas-database": database, "sas-broker": "setup" if role == "migrate" else role}
        assert made["sas"] | {source["secret"]["items"][0]["path"] for source in sources[1:]} == wanted
        assert {keys["sas-database"]} <= made["sas-database"]
        assert {keys["sas-broker"]} <= made["sas-broker"]


def test_pods_are_spread_and_a_node_may_be_emptied():
    chosen = [item["spec"]["selector"]["matchLabels"] for item in objects("PodDisruptionBudget")]

    assert sorted(labels["role"] for labels in chosen) == ["agents", "scheduler", "supervisor", "web"]
    for pod in pods().values():
        keys = {rule["topologyKey"] for rule in pod["topologySpreadConstraints"]}
        assert keys == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}


def test_the_network_lets_in_requests_alone():
    policies = {item["metadata"]["name"]: item["spec"] for item in objects("NetworkPolicy")}

    assert policies["roles"]["podSelector"] == {"matchLabels": {"app": "sas"}}
    assert "ingress" not in policies["roles"]
    assert {port["port"] for rule in policies["web"]["ingress"] for port in rule["ports"]} == {8000}
    closed = {path["path"]: path["backend"]["service"]["name"] for path in objects("Ingress")[0]["spec"]["rules"][0]["http"]["paths"]}
    assert closed == {"/": "web", "/healthz": "closed", "/readyz": "closed", "/metrics": "closed"}


def test_every_role_but_web_is_probed_by_its_file():
    for name, pod in pods().items():
        if name != "web":
            (container,) = pod["containers"]
            for probe in ("startupProbe", "livenessProbe"):
                assert container[probe]["exec"]["command"] == ["/app/deploy/alive"], name
            assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] >= 300


def test_the_probe_looks_at_the_file_and_else_asks_the_web_role(tmp_path: Path):
    file = tmp_path / "alive"

    def alive(**environ: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SAS_ALIVE_FILE": str(file), "PORT": "1", **environ}
        return subprocess.run([ROOT / "deploy" / "alive"], env=env, capture_output=True, text=True, timeout=30, check=False)

    assert "/healthz" in alive().stderr
    file.touch()
    assert alive().returncode == 0
    os.utime(file, (0, 0))
    stale = alive()
    assert (stale.returncode, "touched" in stale.stderr) == (1, True)


def test_a_worker_touches_its_file_without_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SAS_ALIVE_FILE", str(tmp_path / "alive"))
    monkeypatch.setattr(lifecycle.identity, "set_role", lambda role: None)
    monkeypatch.setattr(lifecycle.failpoints, "load", lambda: None)

    sender = SimpleNamespace(app=SimpleNamespace(amqp=SimpleNamespace(queues=SimpleNamespace(consume_from={}, select_add=None))))
    lifecycle.learn_queues("beat-1@here", sender)

    for _ in range(500):
        if (tmp_path / "alive").exists():
            return
        time.sleep(0.01)
    pytest.fail("the file was not touched")


def test_the_image_is_built_in_stages_and_its_linter_finds_nothing():
    linter = Path(sys.executable).parent / "hadolint"
    services.require_service("hadolint", linter.exists(), "pip install -r requirements-dev.txt")
    said = subprocess.run([linter, ROOT / "deploy" / "Dockerfile"], capture_output=True, text=True, timeout=60, check=False)
    text = (ROOT / "deploy" / "Dockerfile").read_text()

    assert (said.returncode, said.stdout) == (0, "")
    last = text[text.rindex("\nFROM") :]
    assert text.count("\nFROM ${BASE}") == 3  # the digest is an argument
    assert "--require-hashes" in text
    assert "pip" not in last
    assert re.search(r"^USER 10001", last, re.MULTILINE)
    assert "HEALTHCHECK" in last


COMPOSE = ROOT / "deploy" / "compose.yaml"


def test_the_compose_file_has_every_role_hardened_and_in_order():
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    roles = yaml.safe_load(COMPOSE.read_text())["services"]

    assert set(procfile()) <= set(roles)
    for name, service in roles.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service.get("read_only") is True or name == "rabbitmq"
    for name in procfile():
        assert roles[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
        assert roles[name]["command"] == [name]
        assert "alive" in roles[name]["healthcheck"]["test"][1]


def test_the_secrets_of_the_compose_file_are_made_once_and_start_the_roles(tmp_path: Path):
    made = tmp_path / "secrets"
    for _ in range(2):
        subprocess.run([ROOT / "deploy" / "secrets", made], check=True, capture_output=True, timeout=60)
        (made / "keep").write_text((made / "secret_key").read_text())
    compose = yaml.safe_load(COMPOSE.read_text())
    (made / "stripe_api_key").write_text("sk_live_1\n")
    (made / "carrier_api_key").write_text("key\n")
    (made / "email_url").write_text("smtps://mail.example\n")

    assert (made / "keep").read_text() == (made / "secret_key").read_text()
    assert made.stat().st_mode & 0o777 == 0o700
    for name, secret in compose["secrets"].items():
        assert secret["file"].endswith(f"/{name}")
        assert (made / name).stat().st_mode & 0o004, name
    for role in procfile():
        service = compose["services"][role]
        files = {row.get("target", row["source"]): made / row["source"] for row in service["secrets"]}
        given = {name: str(value) for name, value in service["environment"].items() if not name.endswith("_FILE") and "$" not in str(value)}
        paths = {name: str(files[Path(path).name]) for name, path in service["environment"].items() if name.endswith("_FILE")}
        found = read("CELERY_BROKER_URL STRIPE_API_KEY DATABASES", **given, **paths, ALLOWED_HOSTS="localhost")
        assert found["CELERY_BROKER_URL"].startswith(f"amqp://sas-{role}:")
        assert found["DATABASES"]["default"]["USER"] == ("sas_web" if role == "web" else "sas_worker")
        assert found["STRIPE_API_KEY"] == "sk_live_1"


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
    named = set(re.findall(r"\bsas_[a-z_]+", (ROOT / "deploy" / "README.md").read_text()))

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


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The systemd units as installed, with this checkout instead of /opt/sas."""
    for name in UNITS:
        text = (SYSTEMD / name).read_text().replace("/opt/sas", str(ROOT)).replace("User=sas", "User=root")
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_units(units: Path):
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(f"./{name}" for name in UNITS)],
        cwd=units,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    complaints = [line for line in said.stderr.splitlines() if "sas" in line]
    assert (said.returncode, complaints) == (0, [])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_each_unit_is_exposed_to_little(units: Path, name: str):
    unit = name.replace("@.", "@1.")
    (units / name).rename(units / unit)
    if "autoscale" not in name:  # `units` replaced the user, who does not exist here
        (units / unit).write_text((units / unit).read_text().replace("User=root", "User=nobody"))

    said = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=30", f"./{unit}"],
        cwd=units,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

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
