"""The documentation site builds, and a defect in a page stops the build."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(1800)  # a build takes 9 s of one core

ROOT = Path(__file__).resolve().parent.parent


def build(pages: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of the pages in this directory, as `./run docs` does."""
    arguments = ["-q", "-E", "-W", "--keep-going", "-c", "docs", str(pages), str(site)]
    return subprocess.run([sys.executable, "-m", "sphinx", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_site_builds_without_a_warning_and_loads_nothing_from_other_sites(tmp_path: Path):
    built = build(ROOT, tmp_path)

    assert (built.returncode, built.stderr) == (0, "")
    page = (tmp_path / "docs" / "reference.html").read_text()
    assert all(f'id="supervision.{name}"' in page for name in ("workflow.Step", "agent.Agent", "retry.RetryPolicy", "testing.submit"))
    assert re.findall(r'(?:src|<link[^>]* href)="(?:https?:)?//[^"]*"', page) == []


def test_broken_links_and_lost_pages_stop_the_build(tmp_path: Path):
    docs = tmp_path / "pages" / "docs"
    docs.mkdir(parents=True)
    (docs / "index.md").write_text("# Start\n\n[page](missing.md)\n\n[anchor](#missing)\n\n[far](lost.md#nowhere)\n")
    (docs / "lost.md").write_text("# In no part of the navigation\n")

    built = build(tmp_path / "pages", tmp_path / "site")

    assert built.returncode != 0
    found = [line.partition("WARNING: ")[2] for line in built.stderr.splitlines() if "WARNING: " in line]
    assert len(found) == 4, built.stderr
    for defect in ("missing.md", "'missing'", "'nowhere'", "toctree"):
        assert any(defect in line for line in found), (defect, found)
