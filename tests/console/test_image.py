"""The image and the compose file of deploy/: stages, its probe, hardened services, secrets as files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from django.conf import settings

from chaos.look import until
from sasproject.roles import procfile
from supervision.telemetry import spans
from supervision.worker import lifecycle
from tests import services
from tests.stack.test_settings import read

ROOT = Path(settings.BASE_DIR)


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

    until((tmp_path / "alive").exists, what="the touched file")


def test_a_worker_that_cannot_send_spans_does_not_start_and_has_learnt_its_queues(monkeypatch: pytest.MonkeyPatch, capsys: Any):
    """Celery logs the error of a signal's receiver and starts the worker, without what comes after it."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(spans, "on", False)
    monkeypatch.setattr(spans, "find_spec", lambda name: None)
    monkeypatch.setattr(lifecycle.identity, "set_role", lambda role: None)
    served = []
    monkeypatch.setattr(lifecycle.runner.process, "serve", lambda queues: served.extend(queues))
    queues = SimpleNamespace(consume_from={"agent.payment": None}, select_add=None)

    with pytest.raises(SystemExit) as end:
        lifecycle.learn_queues("agents-1@here", SimpleNamespace(app=SimpleNamespace(amqp=SimpleNamespace(queues=queues))))

    assert (end.value.code, served) == (1, ["agent.payment"])
    assert capsys.readouterr().err.startswith("refused: OTEL_EXPORTER_OTLP_ENDPOINT is set, but the packages")


def test_the_image_contains_nothing_that_git_ignores_and_no_secret():
    """The build's context is the whole checkout, with the secrets that `deploy/secrets` has made in it."""
    lines = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    left_out = [line.removeprefix("**/") for line in lines if not line.startswith("#")]
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split()]

    assert "deploy/compose-secrets" in left_out
    assert [path for path in ignored if path not in left_out and not any(fnmatch(path, line) for line in left_out)] == [
        "benchmarks/results"
    ]
    assert "benchmarks" in left_out


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
