"""Whole shops for the end-to-end tests, one per broker and module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import services
from tests.support.shop import Shop, open_shop


@pytest.fixture(scope="module", params=[pytest.param("pgmq", marks=pytest.mark.nightly), "amqp", "redis"])
def shop_on_each_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The same shop over the embedded default, RabbitMQ (there without local pick-up) and Redis."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "pgmq":
        with open_shop("pgmq://", directory) as shop:
            yield shop
    elif request.param == "amqp":
        with services.own_vhost() as url, open_shop(url, directory, SUPERVISION_LOCAL_PICKUP="0") as shop:
            yield shop
    else:
        with services.own_redis() as url, open_shop(url, directory) as shop:
            yield shop


@pytest.fixture(
    scope="module",
    params=[pytest.param("1", id="local-pickup"), pytest.param("0", id="scheduler-alone", marks=pytest.mark.nightly)],
)
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop on the embedded default with short deadlines, for tests that break something and repair it."""
    soon = {"SUPERVISION_COMPLETE_WITHIN": "3", "SUPERVISION_SWEEP_SECONDS": "1", "SUPERVISION_LOCAL_PICKUP": request.param}
    with open_shop("pgmq://", tmp_path_factory.mktemp("shop"), **soon) as running:
        yield running
