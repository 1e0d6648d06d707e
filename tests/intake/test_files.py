"""Orders from files: unique keys, a line number for every refusal, and no order placed twice."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from supervision.models import Submission
from supervision.wakeup import hints
from tests.shopping import a_product, a_request

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "enabled", False)


def placed(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Place the orders of this file; returns the summary, also when orders were refused."""
    with suppress(CommandError):  # raised when an order was refused
        call_command("place_orders", "--file", str(path), "--json", *options)
    return dict(json.loads(capsys.readouterr().out))


def test_a_file_placed_again_under_its_batch_key_places_only_what_is_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_product()
    path = tmp_path / "orders.jsonl"
    lines = [json.dumps(a_request(email=f"{name}@example.com")) for name in "abc"]
    path.write_text("\n".join([lines[0], "no JSON", lines[1]]) + "\n")

    first = placed(path, capsys, "--batch-key", "monday")
    path.write_text("\n".join([lines[0], lines[2], lines[1]]) + "\n")
    second = placed(path, capsys, "--batch-key", "monday")

    assert (first["accepted"], [error["line"] for error in first["errors"]]) == (2, [2])
    assert (second["accepted"], second["replayed"], second["errors"]) == (3, 2, [])
    assert sorted(Submission.objects.values_list("client_key", flat=True)) == ["monday:1", "monday:2", "monday:3"]
    assert len(set(Submission.objects.values_list("public_id", flat=True))) == 3


def test_one_key_for_two_orders_is_refused_at_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a_product()
    path = tmp_path / "orders.csv"
    head = "email,name,line1,line2,city,postal_code,country,sku,quantity,payment_method,idempotency_key"
    row = "ada@example.com,Ada L.,Via Roma 1,,Torino,10121,IT,MUG-BLUE,{},pm_card_visa,one"
    path.write_text("\n".join([head, row.format(1), row.format(2), row.format(1), row.format("many")]))

    summary = placed(path, capsys)

    assert (summary["accepted"], summary["replayed"]) == (2, 1)
    assert [error["line"] for error in summary["errors"]] == [3, 5]
    assert Submission.objects.count() == 1


def test_a_batch_key_needs_a_file() -> None:
    with pytest.raises(CommandError, match="belongs to --file"):
        call_command("place_orders", "--count", "1", "--batch-key", "x")
