"""A Python client generated from our schema, as its users generate theirs: it places an order and follows it at a live server."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from drf_spectacular.generators import SchemaGenerator
from knox.models import AuthToken

from supervision.intake.consuming import consume_batch
from tests.shopping import a_product, a_request, an_account

OPERATIONS = sum(len(operations) for operations in SchemaGenerator().get_schema(request=None, public=True)["paths"].values())


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The package that openapi-python-client writes. A warning of it is an error: it leaves out what it does not understand."""
    folder: Path = tmp_path_factory.mktemp("client")
    (folder / "schema.json").write_text(json.dumps(SchemaGenerator().get_schema(request=None, public=True)))
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "schema.json", "--meta", "none"]
    command += ["--output-path", "orders_client", "--fail-on-warning"]
    found = {**os.environ, "PATH": str(Path(sys.executable).parent)}  # of the programs that it calls: ruff
    done = subprocess.run(command, cwd=folder, env=found, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield importlib.import_module("orders_client")
    sys.path.remove(str(folder))


def test_the_client_has_a_function_for_every_operation(generated):
    written = [path for path in (Path(generated.__file__).parent / "api").rglob("*.py") if path.name != "__init__.py"]

    assert len(written) == OPERATIONS


@pytest.mark.django_db(transaction=True)
def test_the_client_places_an_order_and_follows_it(generated, live_server, settings):
    settings.API_THROTTLE = None
    a_product()
    token = AuthToken.objects.create(an_account("server", "client"))[1]
    api, models = importlib.import_module("orders_client.api.orders"), importlib.import_module("orders_client.models")
    call = {name: importlib.import_module(f"{api.__name__}.{name}") for name in ("place_order", "get_order", "list_events", "cancel_order")}

    with generated.AuthenticatedClient(base_url=live_server.url, token=token, prefix="Token") as client:
        wanted = models.OrderRequest.from_dict(a_request())
        placed = call["place_order"].sync(client=client, body=wanted, idempotency_key="k-1")
        again = call["place_order"].sync_detailed(client=client, body=wanted, idempotency_key="k-1")
        consume_batch(born=False)
        followed = call["get_order"].sync_detailed(placed.id, client=client)
        events = call["list_events"].sync(placed.id, client=client)
        stale = call["cancel_order"].sync(placed.id, client=client, body=models.ReasonRequest(reason="no"), if_match='"old"')
        refused = call["place_order"].sync(client=client, body=models.OrderRequest.from_dict(a_request(email="x")))

    assert (again.parsed.id, again.headers["Idempotent-Replayed"]) == (placed.id, "true")
    assert isinstance(followed.parsed, models.ExpandedOrder)
    assert (followed.parsed.number, followed.parsed.steps[0].name) == (placed.number, "reserve-stock")
    assert followed.headers["ETag"]
    assert [event.seq for event in events.results] == list(range(1, len(events.results) + 1))
    assert (stale.code, refused.code) == ("precondition_failed", "invalid")
