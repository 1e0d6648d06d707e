"""Alerts, runbooks and the dashboard name what is there: metrics of `/metrics`, sections of the runbooks, and alerts that fire."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml
from django.test import Client

from sasproject.roles import ROOT
from supervision.telemetry import measures
from tests import services

RULES = ROOT / "deploy/prometheus/rules.yml"
DASHBOARD = ROOT / "deploy/grafana/orders.json"
NAMED = re.compile(r"\bsas_[a-z_]+")


def alerts() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict]:
    found: list[dict] = json.loads(DASHBOARD.read_text())["panels"]
    return found


@pytest.fixture
def exported(db) -> set[str]:
    """The names of all series that `/metrics` may have."""
    text = Client().get("/metrics").content.decode()
    names = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M):
        names |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"} if kind == "histogram" else {name}
    return names


def test_each_alert_and_each_panel_reads_metrics_that_are_exported(exported):
    used = {name for rule in alerts() for name in NAMED.findall(rule["expr"])}
    shown = {name for panel in panels() for target in panel["targets"] for name in NAMED.findall(target["expr"])}

    assert used <= exported, used - exported
    assert shown <= exported, shown - exported
    assert len(used) > 15
    assert {name for name, measure in measures.declared.items() if not measure.bounds} <= used | shown | {"sas_submissions_consumed_total"}


def test_each_alert_has_its_runbook_and_each_runbook_its_alert():
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs/runbooks.md").read_text(), re.M)

    assert sections == [rule["alert"] for rule in alerts()]
    for rule in alerts():
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
    parts = re.split(r"^## \w+$", (ROOT / "docs/runbooks.md").read_text(), flags=re.M)[1:]
    assert all(all(f"**{word}**:" in part for word in ("Means", "Look", "Do")) for part in parts)


def test_the_dashboard_has_the_shape_that_grafana_reads():
    dashboard = json.loads(DASHBOARD.read_text())

    assert dashboard["schemaVersion"] >= 39
    assert dashboard["title"]
    assert [one["type"] for one in dashboard["templating"]["list"]] == ["datasource"]
    assert len({panel["id"] for panel in panels()}) == len(panels())
    cells = set()
    for panel in panels():
        assert {"type", "title", "gridPos", "targets", "datasource"} <= panel.keys()
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        mine = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not mine & cells, f"{panel['title']} covers another panel"
        cells |= mine


@pytest.mark.parametrize(
    "what", [["check", "rules", "rules.yml"], ["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]]
)
def test_prometheus_takes_the_rules_and_each_alert_fires_when_it_should(what):
    services.require_service("promtool", shutil.which("promtool"), "apt-get install prometheus")
    done = subprocess.run(["promtool", *what], cwd=RULES.parent, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_tested_both_ways():
    tests = yaml.safe_load((RULES.parent / "rules_test.yml").read_text())["tests"]
    tested = dict.fromkeys(one["name"].partition(":")[0] for one in tests)  # after a colon: which case of it

    assert list(tested) == [f"{rule['alert']} {way}" for rule in alerts() for way in ("fires", "stays calm")]
