"""The Kubernetes manifests of deploy/, as kustomize renders them: fields that exist, least rights, secrets by role, probes."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from django.conf import settings

from tests import services

ROOT = Path(settings.BASE_DIR)
KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("production", "small")


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
