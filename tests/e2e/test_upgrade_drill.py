"""The drill of an upgrade in short: the release before the newest migration, its tables and its processes, and then today's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from chaos import drills, upgrading
from sasproject.roles import ROOT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]


def before_the_newest_migration() -> str:
    """Git's name of the state of the main line before a migration was added last."""
    asked = ["git", "log", "--first-parent", "-m", "--diff-filter=A", "--max-count=1", "--format=%H", "--", "*/migrations/*.py"]
    return f"{subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()}~1"


def test_an_older_release_is_upgraded_and_put_back_beside_orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrading, "CALM_SECONDS", 1.0)
    old = upgrading.older(tmp_path, before_the_newest_migration())

    figures, wrong = drills.upgrade(tmp_path, old, rate=3.0, broker="pgmq")

    assert wrong == []
    assert figures["orders"] > 0


def test_a_revision_that_git_does_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no-such-release"):
        upgrading.older(tmp_path, "no-such-release")
