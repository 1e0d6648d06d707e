"""The drill of password guessing in short: each door of a real web process looks at nine passwords, and one more would be noticed."""

from __future__ import annotations

import math

import pytest

from chaos import guessing
from tests.support.shop import open_shop

pytestmark = pytest.mark.timeout(600)


@pytest.mark.nightly
def test_each_door_looks_at_nine_passwords_and_the_drill_tells_of_one_more(tmp_path, monkeypatch):
    monkeypatch.setattr(guessing, "BURSTS", 4)
    monkeypatch.setattr(guessing, "BURST_SECONDS", 0.0)
    monkeypatch.setattr(guessing, "IDLE_SECONDS", 0.3)
    monkeypatch.setattr(guessing, "MOST_TIMES", math.inf)
    monkeypatch.setattr(guessing, "MOST_LOOKED_AT", 8)
    with open_shop("pgmq://", tmp_path, "web") as shop:
        figures, wrong = guessing.drill(shop, say=lambda text: None)

    assert figures.keys() == {door.name for door in guessing.DOORS}
    assert [line.partition(";")[0] for line in wrong] == [f"{door.name}: 9 passwords were looked at" for door in guessing.DOORS]
