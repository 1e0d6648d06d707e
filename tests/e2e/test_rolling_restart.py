"""A rolling restart: every process gets SIGTERM and is replaced, one after the other, while customers order."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import restarting
from tests.support.shop import open_shop, until

ORDERS_PER_SECOND = 4


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_rolling_restart_under_load_is_noticed_by_no_customer_and_no_operator(tmp_path: Path) -> None:
    with open_shop("pgmq://", tmp_path, *restarting.PROCESSES) as shop:
        customers = restarting.Customers(shop, ORDERS_PER_SECOND)
        customers.start()
        until(lambda: len(customers.keys) > 10, what="the first orders")

        goodbyes = {name: restarting.replace(shop, customers, name) for name in restarting.PROCESSES}
        customers.stop()

        assert restarting.judge(shop, customers, list(goodbyes.values())) == []
        assert len(customers.keys) > 20, "customers ordered all the time"


def test_the_99th_percentile_is_of_the_requests_that_began_in_the_period() -> None:
    customers = restarting.Customers.__new__(restarting.Customers)
    customers.took = [(at / 100, 0.010) for at in range(100)] + [(1.5, 7.0), (2.0, 9.0)]

    assert customers.p99(0.0, 1.0) == pytest.approx(0.010)
    assert customers.p99(0.0, 1.8) == pytest.approx(7.0, rel=0.05)
    assert customers.p99(0.0, 0.9) is None, "too few to say"
