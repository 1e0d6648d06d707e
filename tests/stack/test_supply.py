"""What the product is made of: pinned files, licences, advisories, our own rules, the bill of materials."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from tests import services
from tests.stack.test_bootstrap import ROOT, load
from tests.support.serving import Handler, serving

supply = load("supply")


@pytest.fixture
def tools():
    services.require_service("The tools of ./run supply", supply.TOOLS.is_dir(), "./run supply installs them")


@pytest.fixture
def osv():
    """A service that answers as OSV does; `vulnerable` maps the name of a package to the id of its vulnerability."""

    class Answers(Handler):
        vulnerable: dict[str, str] = {}

        def post(self):
            asked = json.loads(self.body())
            known = self.vulnerable.get(asked["package"]["name"])
            package = {"ecosystem": "PyPI", "name": asked["package"]["name"]}
            ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]
            vulns = (
                [{"id": known, "published": "2026-01-01T00:00:00Z", "affected": [{"package": package, "ranges": ranges}]}] if known else []
            )
            self.answer(200, json.dumps({"vulns": vulns} if vulns else {}).encode())

    with serving(Answers) as url:
        yield f"{url}/v1/query", Answers


def test_a_known_vulnerability_of_a_locked_version_fails_the_check(tools, osv):
    url, answers = osv
    answers.vulnerable["django"] = "PYSEC-2026-1"

    passed, text = supply.advisories(url)

    assert passed is False
    assert re.fullmatch(r"django [\d.]+: PYSEC-2026-1", text, re.I)


def test_without_a_known_vulnerability_the_check_passes(tools, osv):
    assert supply.advisories(osv[0]) == (True, "")


def test_without_an_advisory_database_the_check_says_so_and_is_not_taken_for_passed(tools):
    passed, text = supply.advisories("http://127.0.0.1:9/v1/query")

    assert passed is None
    assert text


@pytest.mark.parametrize(
    ("licence", "fits"),
    [
        ("MIT", True),
        ("BSD License", True),
        ("Apache-2.0 AND BSD-2-Clause", True),
        ("LGPL-3.0-only", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only", False),
        ("GNU General Public License v3 (GPLv3)", False),
        ("MIT AND GPL-3.0-only", False),
        ("AGPL-3.0", False),
        ("UNKNOWN", False),
        ("", False),
    ],
)
def test_a_licence_that_binds_the_product_is_refused(licence, fits):
    assert supply._fits(licence) is fits


def test_each_of_our_rules_finds_an_example_and_lets_another_pass():
    rules = set(re.findall(r"- id: ([\w-]+)", (ROOT / "scripts/rules/security.yml").read_text()))
    examples = "".join((ROOT / "scripts/rules" / name).read_text() for name in ("security.py", "security.html"))

    assert rules == set(re.findall(r"ruleid: ([\w-]+)", examples))
    assert rules == set(re.findall(r"ok: ([\w-]+)", examples))


def test_a_line_that_breaks_a_rule_is_found(tools, tmp_path):
    page = tmp_path / "page.py"
    page.write_text("from django.utils.safestring import mark_safe\n\n\ndef shown(name):\n    return mark_safe(f'<b>{name}</b>')\n")

    done = supply._run("semgrep", "scan", "--error", "--quiet", "--config", f"{supply.RULES}/security.yml", *supply.QUIET, str(page))

    assert done.returncode == 1
    assert "text-marked-safe" in done.stdout


def test_the_bill_of_materials_has_every_locked_package_with_the_hashes_of_its_files(tools):
    assert supply.sbom() == (True, "")
    bill = json.loads((ROOT / "build/sbom.json").read_text())
    locked = re.findall(r"^([\w.-]+)==([^\s;]+)", supply.LOCK.read_text(), re.M)

    assert {(part["name"], part["version"]) for part in bill["components"]} == set(locked)
    assert all(reference["hashes"] for part in bill["components"] for reference in part["externalReferences"])
    assert bill["metadata"]["component"]["name"] == "sas-supervision"


def test_an_unknown_part_is_refused_in_a_line():
    done = subprocess.run([sys.executable, "scripts/supply.py", "licenses"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "invalid choice: 'licenses'" in done.stderr.splitlines()[-1]


def test_image_and_commands_install_the_locked_versions_with_their_hashes():
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()

    assert "--require-hashes -r requirements.lock" in dockerfile
    assert not re.search(r"pip install[^\n]*requirements\w*\.txt", dockerfile)
