"""PgBouncer in transaction mode: every role works through it beside a direct way, and refuses in one line without one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from sasproject.roles import ROOT
from tests import services
from tests.support import forked
from tests.support.pgbouncer import PROGRAM, pgbouncer
from tests.support.shop import Shop, first_port, order, scratch_database, until

pytestmark = pytest.mark.timeout(900)
IGNORES = "ignore_startup_parameters = options"
FLAW = "import django; django.setup(); from supervision.postgres import pooling; print(pooling.way(), pooling.flaw())"


@pytest.fixture(autouse=True, scope="module")
def _needs_pgbouncer() -> None:
    services.require_service("PgBouncer", PROGRAM, "apt-get install pgbouncer")


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A prepared database's own URL."""
    with scratch_database(tmp_path_factory.mktemp("scratch")) as url:
        yield url


def run(*arguments: str, **environ: str) -> tuple[int, str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "CELERY_BROKER_URL")}
    env = {**kept, "DEBUG": "1", "DJANGO_SETTINGS_MODULE": "sasproject.settings", **environ}
    done = forked.run([sys.executable, *arguments], cwd=ROOT, env=env, timeout=60)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize(
    ("mode", "way", "flaw"), [("transaction", "transaction", "set DATABASE_DIRECT_URL"), ("session", "session", "None")]
)
def test_a_pooler_is_recognised_by_what_it_does(direct, tmp_path, mode, way, flaw):
    with pgbouncer(direct, tmp_path, mode=mode, more=IGNORES) as url:
        _, said, wrong = run("-c", FLAW, DATABASE_URL=url)

    assert said.startswith(way), wrong
    assert flaw in said


def test_the_server_itself_is_no_pooler(direct):
    assert run("-c", FLAW, DATABASE_URL=direct)[1] == "direct None"


@pytest.mark.parametrize(
    "arguments", [("-c", "import sasproject.asgi"), ("manage.py", "work", "supervisor"), ("manage.py", "work", "beat")]
)
def test_a_role_behind_it_without_a_direct_way_ends_with_one_line(direct, tmp_path, arguments):
    with pgbouncer(direct, tmp_path, more=IGNORES) as url:
        code, _, said = run(*arguments, DATABASE_URL=url, CELERY_BROKER_URL="memory://")

    assert code == 1
    assert [line for line in said.splitlines() if "DATABASE_DIRECT_URL" in line and line.startswith("refused: ")], said


def test_the_doctor_says_what_is_wrong(direct, tmp_path):
    with pgbouncer(direct, tmp_path) as url:
        refused = run("manage.py", "doctor", DATABASE_URL=url)[1]
        well = run("manage.py", "doctor", DATABASE_URL=url, DATABASE_DIRECT_URL=direct)[1]
        not_direct = run("manage.py", "doctor", DATABASE_URL=url, DATABASE_DIRECT_URL=url)[1]

    assert "set DATABASE_DIRECT_URL" in refused
    assert "ok    sessions: a pooler in transaction mode" in well
    assert "fail  sessions: the way to the database leads through a pooler" in not_direct


@pytest.mark.parametrize("broker", ["pgmq", pytest.param("amqp", marks=pytest.mark.nightly)])
def test_an_order_goes_through_every_role_behind_it(tmp_path, broker, request):
    broker_url = "pgmq://" if broker == "pgmq" else request.getfixturevalue("amqp_url")
    with scratch_database(tmp_path) as direct, pgbouncer(direct, tmp_path) as url:
        shop = Shop(url, broker_url, tmp_path, first_port=first_port(), DATABASE_DIRECT_URL=direct)
        shop.database_url = direct  # for this test's own questions
        try:
            shop.open()
            headers = shop.headers()
            answers = [shop.http.post("/api/v1/orders/", json=order(), headers=headers) for _ in range(10)]
            placed = [answer.json()["id"] for answer in answers]
            done = "SELECT count(*) FROM supervision_run WHERE process_state = 'Processed' AND key = ANY(%s)"
            until(lambda: shop.rows(done, placed) == [(10,)], within=60, what="the orders")
            assert "no findings" in shop.manage("reconcile")
            assert "all hold" in shop.manage("audit")
            assert shop.http.get("/readyz").status_code == 200
            for role in ("web", "scheduler", "agents", "supervisor", "beat"):
                assert "prepared statement" not in shop.log(role)
                assert "Traceback" not in shop.log(role)
        finally:
            shop.close()
