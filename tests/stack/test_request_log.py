"""The request log of a real web role: written within a second, and before the process ends."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support.shop import Shop, open_shop, until

WROTE = "SELECT request_id, status, missing FROM supervision_apirequest ORDER BY id"


def refused(shop: Shop) -> str:
    """The name of a request that is refused."""
    answer = shop.http.post("/api/v1/orders/", json={})
    assert answer.status_code == 401, answer.text
    return str(answer.headers["Request-Id"])


def test_requests_are_written_by_each_process_and_before_it_ends(tmp_path: Path) -> None:
    with open_shop("pgmq://", tmp_path, "web", REQUEST_LOG_DAYS="14", WEB_CONCURRENCY="2") as shop:
        names = {refused(shop) for _ in range(20)}
        until(lambda: {row[0] for row in shop.rows(WROTE)} == names, what="the log")

        last = {refused(shop) for _ in range(20)}
        shop.signal("web", signal.SIGTERM)
        shop.processes["web"].wait(30)

        assert {row[0] for row in shop.rows(WROTE)} == names | last
        assert all(row[1:] == (401, 0) for row in shop.rows(WROTE))
