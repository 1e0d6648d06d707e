"""A project with a user model of its own: UUIDs as keys, mail addresses as names, a manager without Django's further methods."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.shop import scratch_database
from supervision.desk import notes

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(300)
def test_an_operator_works_with_accounts_that_are_not_djangos():
    with scratch_database() as database_url:
        env = {**os.environ, "DATABASE_URL": database_url}
        command = [sys.executable, "-m", "tests.support.travellers.walk"]  # not forked: that server has imported our accounts' models
        walked = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)

    assert walked.stdout.endswith("walked\n"), walked


class Member:
    """An account whose rights are in no table that Django knows."""

    def __init__(self, name: str, *, is_active: bool = True, may: bool = True) -> None:
        self.name, self.is_active, self.may = name, is_active, may

    def get_username(self) -> str:
        return self.name

    def has_perm(self, right: str) -> bool:
        return self.may


class Members:
    """The accounts, by their key."""

    def order_by(self, key: str) -> list[Member]:
        return [Member("olga"), Member("eve", may=False), Member("left", is_active=False)]


def test_accounts_without_djangos_tables_of_rights_are_asked_one_by_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Member, "_default_manager", Members(), raising=False)
    monkeypatch.setattr(notes, "get_user_model", lambda: Member)

    assert notes.operators() == ["olga"]
