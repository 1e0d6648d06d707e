"""Two releases side by side: waiting orders move in bulk to the new one's version, while processes of both are killed.

`beat` runs too: a step that the old release leaves to the new one waits two seconds, and the next tick finds it. The old
release's processes leave the moved orders alone, every order ends, and each of its effects happens once.
TWO_RELEASES chooses how many orders wait.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from chaos.releases import release
from tests.e2e.test_deploys import manage, place
from tests.support.shop import Shop, open_shop, order, until

ORDERS = int(os.environ.get("TWO_RELEASES", "12"))
NAMES = ("scheduler", "agents", "supervisor")
QUICK = {"SUPERVISION_COMPLETE_WITHIN": "5", "SUPERVISION_SWEEP_SECONDS": "1", "SUPERVISION_FAILURE_THRESHOLD": "100"}
ASLEEP = """
SELECT r.key, r.version FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id
 WHERE s.awaits = 'transfer-received' AND s.process_state = 'Pending' AND s.turn_at IS NULL ORDER BY r.id
"""
# Claims of moved orders, by who made them. A heartbeat names the versions that its process knows.
CLAIMED = """
SELECT e.actor, count(*) FROM supervision_stepevent e
  JOIN supervision_stepevent m ON m.run_id = e.run_id AND m.position IS NULL
   AND m.why LIKE 'moved from version 1 to version 3%%' AND e.seq > m.seq
 WHERE e.to_state = 'Processing' AND e.position IS NOT NULL GROUP BY 1
"""
OLD = "SELECT incarnation FROM supervision_heartbeat WHERE NOT detail->'workflows'->'fulfil-order' @> '3'"
UNFINISHED = """
SELECT (SELECT count(*) FROM supervision_submission WHERE consumed_at IS NULL)
       + (SELECT count(*) FROM supervision_run WHERE finished_at IS NULL)
"""


def by_transfer(shop: Shop, directory: Path) -> None:
    """Accept orders that wait for the customer's transfer."""
    file = directory / "orders.jsonl"
    file.write_text("".join(f"{json.dumps(order(payment_method='bank_transfer'))}\n" for _ in range(ORDERS)))
    shop.manage("place_orders", "--file", str(file))


def restart(shop: Shop, *names: str) -> None:
    """Kill these processes and start them again."""
    shop.kill9(*names)
    for name in names:
        shop.spawn(name)


def paid(shop: Shop, key: str) -> None:
    [(total,)] = shop.rows("SELECT total FROM orders_order WHERE public_id = %s", key)
    payload = json.dumps({"amount": str(total), "currency": "EUR", "reference": key})
    shop.manage("signal", key, "--name", "transfer-received", "--payload", payload, "--key", key, "--reason", "bank statement")


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_waiting_orders_move_to_the_version_of_the_release_that_starts_beside_the_old_one(tmp_path: Path) -> None:
    with open_shop("pgmq://", tmp_path, *NAMES, "beat", BANK_ACCOUNT="Shop, IT00 TEST", **QUICK) as shop:
        by_transfer(shop, tmp_path)
        until(lambda: len(shop.rows(ASLEEP)) == ORDERS, within=60, what="the orders to wait")
        tree = release(tmp_path, "added", under_its_version=False)
        new = [f"{name}.new" for name in NAMES]
        shop.trees.update(dict.fromkeys(new, tree))
        shop.start(*new)

        move = ("move", "--workflow", "fulfil-order", "--from", "1", "--to", "3", "--reason", "the law of June")
        with subprocess.Popen([sys.executable, "manage.py", *move], env=shop.env, cwd=tree, stderr=subprocess.DEVNULL) as first:
            until(lambda: first.poll() is not None or shop.rows("SELECT FROM supervision_run WHERE version = 3"), within=60)
            first.kill()
        restart(shop, "agents", "scheduler.new")
        place(shop, 5)
        moved = manage(shop, tree, *move)
        assert "Traceback" not in moved.stderr
        assert dict(Counter(version for _key, version in shop.rows(ASLEEP))) == {3: ORDERS}

        for number, (key, _version) in enumerate(shop.rows(ASLEEP)):
            if number % 3 == 0:
                restart(shop, [*new, *NAMES][number // 3 % 6])
            paid(shop, key)
        until(lambda: shop.rows(UNFINISHED) == [(0,)], within=300, what="every order to end")

        versions = dict(shop.rows("SELECT key, version FROM supervision_run"))
        assert shop.rows("SELECT process_state, count(*) FROM supervision_run GROUP BY 1") == [("Processed", ORDERS + 5)]
        booked = Counter(entry["order"] for entry in shop.ledger("carrier") if entry["operation"] == "create")
        assert booked == dict.fromkeys(versions, 1)
        mails = Counter(entry["order"] for entry in shop.ledger("mail") if entry["operation"] == "deliver")
        assert mails == {key: 2 if version == 3 else 1 for key, version in versions.items()}
        old = {incarnation for (incarnation,) in shop.rows(OLD)}
        claimed = dict(shop.rows(CLAIMED))
        assert old
        assert sum(claimed.values()) >= 3 * ORDERS
        assert not old.intersection(claimed)
        assert "all hold" in shop.manage("audit")
