"""The hosted machines of CI have what the tests ask for: there a missing service fails."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHECK = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["check"]
# What the image of these machines has: systemd itself.
THERE = {"systemd"}
# Services that a test names without the package that brings them.
BRINGS = {"rabbitmqctl": "rabbitmq-server", "Redis": "redis-server"}


def test_every_package_that_a_test_asks_for_is_installed():
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    calls = re.findall(r'require_service\("([^"]+)",.*"([^"]+)"\)$', tests, re.MULTILINE)
    asked = {words.split()[-1] for _what, words in calls if words.startswith("apt-get install ")}
    asked |= {BRINGS[what] for what, _words in calls if what in BRINGS}
    lines = "\n".join(step.get("run", "") for step in CHECK["steps"])
    installed = {word for line in re.findall(r"apt-get install (.*)", lines) for word in line.split()}

    assert CHECK["env"]["REQUIRE_SERVICES"] == "1"
    assert {"rabbitmq-server", "redis-server", "pgbouncer", "prometheus"} <= asked
    assert asked - THERE <= installed
