"""place_orders places many orders through the same service as the API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError

from orders.management.commands.place_orders import paced
from orders.models import Product
from supervision.models import Submission
from tests.commands.conftest import Manage
from tests.shopping import a_request

pytestmark = pytest.mark.django_db

HEADER = "email,name,line1,line2,city,postal_code,country,sku,quantity,payment_method,idempotency_key"
ROW = "ada@example.com,Ada L.,Via Roma 1,,Torino,10121,IT,MUG-BLUE,{quantity},pm_card_visa,{key}"


def jsonl(path: Path, *requests: Any) -> Path:
    path.write_text("".join(request if isinstance(request, str) else json.dumps(request) + "\n" for request in requests))
    return path


def test_it_places_as_many_as_asked_and_prints_their_ids(manage: Manage, mug: Product):
    said = manage("place_orders", "--count", 5)

    assert set(said.lines[:5]) == set(Submission.objects.values_list("public_id", flat=True))
    assert said.lines[5].startswith("5 orders accepted in ")


def test_it_makes_up_the_same_orders_for_the_same_seed(manage: Manage, mug: Product):
    Product.objects.create(sku="LAMP", name="Lamp", price="79.00", available=100)
    for seed in (1, 1, 2):
        manage("place_orders", "--count", 6, "--seed", seed)
    wanted = [json.loads(payload)["lines"] for payload in Submission.objects.order_by("id").values_list("payload", flat=True)]

    assert wanted[:6] == wanted[6:12]
    assert wanted[:6] != wanted[12:]


def test_the_summary_is_json_where_asked(manage: Manage, mug: Product):
    summary = manage("place_orders", "--count", 3, "--json").json

    assert {name: summary[name] for name in ("accepted", "replayed", "refused", "errors")} == {
        "accepted": 3,
        "replayed": 0,
        "refused": 0,
        "errors": [],
    }
    assert len(summary["ids"]) == 3


def test_it_needs_something_to_sell(manage: Manage, db: None):
    with pytest.raises(CommandError, match="nothing is on sale"):
        manage("place_orders", "--count", 1)


def test_it_places_the_orders_of_a_jsonl_file(manage: Manage, mug: Product, tmp_path: Path):
    path = jsonl(tmp_path / "orders.jsonl", a_request(idempotency_key="a"), "\n", a_request(priority="low"))

    manage("place_orders", "--file", path)

    first, second = Submission.objects.order_by("id")
    assert (first.client, first.client_key) == ("guest", "a")
    assert json.loads(second.payload)["priority"] == "low"


def test_a_file_placed_twice_replays_what_has_keys(manage: Manage, mug: Product, tmp_path: Path):
    path = jsonl(tmp_path / "orders.jsonl", a_request(idempotency_key="a"), a_request(idempotency_key="b"))

    first, second = (manage("place_orders", "--file", path, "--json").json for _ in range(2))

    assert second["ids"] == first["ids"]
    assert (second["accepted"], second["replayed"]) == (2, 2)


def test_it_places_the_orders_of_a_csv_file(manage: Manage, mug: Product, tmp_path: Path):
    path = tmp_path / "orders.csv"
    path.write_text("\n".join([HEADER, ROW.format(quantity=2, key="a"), ROW.format(quantity=3, key="")]))

    manage("place_orders", "--file", path)

    quantities = [json.loads(s.payload)["lines"][0]["quantity"] for s in Submission.objects.order_by("id")]
    assert quantities == [2, 3]


def test_what_is_wrong_is_named_by_its_line_and_the_rest_is_accepted(manage: Manage, mug: Product, tmp_path: Path):
    path = jsonl(
        tmp_path / "orders.jsonl",
        a_request(),
        "{broken\n",
        a_request(lines=[{"sku": "NOTHING", "quantity": 1}]),
        a_request(surprise=1),
        a_request(lines=[{"sku": "MUG-BLUE", "quantity": 101}]),
    )

    with pytest.raises(CommandError, match="4 of 5 orders were refused"):
        manage("place_orders", "--file", path)

    assert Submission.objects.count() == 1


def test_every_refusal_is_one_line(manage: Manage, mug: Product, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = jsonl(tmp_path / "orders.jsonl", "[]\n", a_request(lines=[{"sku": "NOTHING", "quantity": 1}]))

    with pytest.raises(CommandError):
        manage_printing("place_orders", "--file", path)

    assert capsys.readouterr().err.splitlines() == [
        "line 1: not a JSON object",
        "line 2: lines[0].sku: There is no product NOTHING.",
    ]


def manage_printing(name: str, *arguments: object) -> None:
    call_command(name, *map(str, arguments))


def test_a_csv_line_that_makes_no_sense_is_named(manage: Manage, mug: Product, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "orders.csv"
    path.write_text("\n".join([HEADER, ROW.format(quantity="two", key="a"), "too,few,cells", ROW.format(quantity=1, key="b")]))

    with pytest.raises(CommandError, match="2 of 3"):
        manage_printing("place_orders", "--file", path)

    assert capsys.readouterr().err.splitlines() == [
        "line 2: quantity: expected a whole number, not 'two'",
        "line 3: expected 11 cells",
    ]


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("orders.txt", "", "must end in .csv or .jsonl"),
        ("orders.jsonl", "", "no orders in it"),
        ("orders.csv", "email,sku\n", "column missing: name, line1"),
        ("orders.csv", HEADER + ",colour\n", "column not known: colour"),
    ],
)
def test_a_file_it_cannot_use_is_refused(name: str, text: str, complaint: str, manage: Manage, mug: Product, tmp_path: Path):
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(CommandError, match=complaint):
        manage("place_orders", "--file", path)


def test_a_file_that_is_not_there_is_refused(manage: Manage, db: None, tmp_path: Path):
    with pytest.raises(CommandError, match="No such file"):
        manage("place_orders", "--file", tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize(
    "arguments", [(), ("--count", 0), ("--count", -1), ("--count", "many"), ("--count", 1, "--rate", 0), ("--count", 1, "--file", "x")]
)
def test_arguments_that_make_no_sense_are_refused(arguments: tuple[object, ...], manage: Manage, db: None):
    with pytest.raises(CommandError):
        manage("place_orders", *arguments)


def test_orders_are_placed_in_the_name_of_an_account(manage: Manage, mug: Product):
    user = User.objects.create_user("carla")

    manage("place_orders", "--count", 1, "--account", "carla")

    assert json.loads(Submission.objects.get().payload)["account"] == user.pk


def test_slow_rates_are_even_and_fast_ones_are_batched(monkeypatch: pytest.MonkeyPatch):
    slept: list[float] = []
    monkeypatch.setattr("orders.management.commands.place_orders.time.sleep", slept.append)

    slow = [len(batch) for batch in paced(range(4), 200, 2.0)]
    fast = [len(batch) for batch in paced(range(1000), 200, 1000.0)]

    assert slow == [1, 1, 1, 1]
    assert fast == [100] * 10
    assert slept[1] == pytest.approx(0.5, abs=0.1)
    assert slept[3] == pytest.approx(1.5, abs=0.1)


def refused(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Place the orders of this file, of which some are refused; returns the summary."""
    with pytest.raises(CommandError):
        manage_printing("place_orders", "--file", path, "--json", *options)
    return dict(json.loads(capsys.readouterr().out))


def test_a_file_placed_again_under_its_batch_key_places_only_what_is_new(
    manage: Manage, mug: Product, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    lines = [json.dumps(a_request(email=f"{name}@example.com")) + "\n" for name in "abc"]
    path = jsonl(tmp_path / "orders.jsonl", lines[0], "no JSON\n", lines[1])

    first = refused(path, capsys, "--batch-key", "monday")
    jsonl(path, lines[0], lines[2], lines[1])
    second = manage("place_orders", "--file", path, "--json", "--batch-key", "monday").json

    assert (first["accepted"], [error["line"] for error in first["errors"]]) == (2, [2])
    assert (second["accepted"], second["replayed"], second["errors"]) == (3, 2, [])
    assert sorted(Submission.objects.values_list("client_key", flat=True)) == ["monday:1", "monday:2", "monday:3"]
    assert len(set(Submission.objects.values_list("public_id", flat=True))) == 3


def test_one_key_for_two_orders_is_refused_at_its_line(manage: Manage, mug: Product, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "orders.csv"
    path.write_text("\n".join([HEADER, *(ROW.format(quantity=quantity, key="one") for quantity in (1, 2, 1, "many"))]))

    summary = refused(path, capsys)

    assert (summary["accepted"], summary["replayed"]) == (2, 1)
    assert [error["line"] for error in summary["errors"]] == [3, 5]
    assert Submission.objects.count() == 1


def test_a_batch_key_needs_a_file(manage: Manage):
    with pytest.raises(CommandError, match="belongs to --file"):
        manage("place_orders", "--count", 1, "--batch-key", "x")
