"""How the drills of releases judge mails: one for each order, and a second one only where the shop noted that it repeats it."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from chaos.restarting import sent_again
from supervision.models import Effect, Run
from tests.engine import kit
from tests.engine.conftest import engine, store_database

__all__ = ["engine", "store_database"]


def noted(key: str, operation: str) -> str:
    """Note a mail's operation of a run in the ledger."""
    run = Run.objects.get(key=key)
    facts = {"attempt": 1, "position": 3, "generation": 1, "direction": "do", "actor": "test"}
    Effect.objects.create(run_id=run.pk, key=f"{key}:notify", service="mail", operation=operation, **facts)
    return key


@pytest.mark.parametrize("killed", [True, False])
def test_a_second_mail_is_right_after_a_kill_and_only_where_the_ledger_has_noted_it(engine, killed):
    twice, thrice, silent = (kit.ran() for _ in range(3))
    for key in (twice, thrice):
        noted(key, "send")
        noted(key, "repeat")
    noted(silent, "send")
    shop = SimpleNamespace(rows=kit.fetch)

    found = sent_again(shop, Counter({twice: 1, thrice: 2, silent: 1}), killed=killed)

    assert found == (Counter({twice: 1, thrice: 1}) if killed else Counter())
