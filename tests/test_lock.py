"""The lock files have one version and hashes for all that the ranges name, and nothing that the ranges no longer allow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("requirements", "requirements-embedded", "requirements-dev", "requirements-tools", "requirements-pip")


def ranges(name: str) -> list[Requirement]:
    """The requirements of a file and of the file that it includes."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / f"{name}.txt").read_text().splitlines()]
    included = [one for line in lines if line.startswith("-r ") for one in ranges(line.removeprefix("-r ").removesuffix(".txt"))]
    return [*included, *(Requirement(line) for line in lines if line and not line.startswith("-"))]


def pins(name: str) -> list[tuple[Requirement, int]]:
    """Every pin of a lock file with the number of its hashes. Anything else in the file is an error, as an index's address."""
    text = (ROOT / f"{name}.lock").read_text()
    found = re.findall(r"^([\w.-]+==[^\\\n]+?)((?: \\\n    --hash=sha256:[0-9a-f]{64})*)\n", text, re.M)
    assert "".join(f"{pin}{hashes}\n" for pin, hashes in found) == text
    return [(Requirement(pin), hashes.count("--hash")) for pin, hashes in found]


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_satisfies_its_ranges_and_has_hashes(name: str):
    locked = pins(name)

    assert [str(pin) for pin, hashes in locked if hashes == 0] == []
    for wanted in ranges(name):
        versions = [next(iter(pin.specifier)).version for pin, _ in locked if canonicalize_name(pin.name) == canonicalize_name(wanted.name)]
        assert versions, f"{wanted} is not in {name}.lock: ./run lock"
        assert all(wanted.specifier.contains(version) for version in versions), f"{wanted}, locked is {versions}: ./run lock"


@pytest.mark.parametrize("name", NAMES[:2])
def test_the_product_runs_on_the_versions_that_it_is_tested_with(name: str):
    tested = {(pin.name, pin.specifier) for pin, _ in pins("requirements-dev")}

    assert [str(pin) for pin, _ in pins(name) if (pin.name, pin.specifier) not in tested] == []
