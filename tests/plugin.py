"""A plugin that is loaded before pytest-django reads the settings: it chooses the database and values of the tests.

With DATABASE_URL set, the tests use that server. Without it, an embedded PostgreSQL runs for the session in a temporary
directory. The settings can name it before it runs, because its address follows from the directory. pytest's cache keeps a
stopped server that has the migrated database `TEMPLATE`, from which each process of the session copies its own.
"""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from sasproject.roles import ROOT
from supervision.embedded.binaries import EmbeddedPostgresError, find_binaries, find_identity
from supervision.embedded.server import EmbeddedPostgres, database_url

os.environ.setdefault("SECRET_KEY", "for-tests-only-and-long-enough-to-be-taken-for-a-real-one")
os.environ.setdefault("SECURE_SSL_REDIRECT", "0")
os.environ.setdefault("GUEST_ORDERS", "off")
os.environ.setdefault("CONSOLE_SECOND_FACTOR", "off")
os.environ.setdefault("CELERY_BROKER_URL", "memory://")
os.environ.setdefault("ALLOW_FAILPOINTS", "1")
os.environ.setdefault("REQUEST_LOG_DAYS", "0")  # its thread would commit beside the test's transaction

TEMPLATE = "sas_migrated"
# Workers of pytest-xdist inherit these variables from the session that started the server.
_state_dir = None if os.environ.get("DATABASE_URL") else tempfile.mkdtemp(prefix="sas-tests-")
if _state_dir is not None:
    os.environ["DATABASE_URL"] = database_url(_state_dir)
    os.environ["TEST_TEMPLATE"] = TEMPLATE
# The tests' journal goes to a temporary directory.
_journal_dir = None if os.environ.get("JOURNAL_DIR") else tempfile.mkdtemp(prefix="sas-journal-")
os.environ.setdefault("JOURNAL_DIR", _journal_dir or "")
_server: EmbeddedPostgres | None = None

# Files that start whole shops, the longest first. A shop is a dozen processes, and its tests wait for deadlines.
WHOLE_SHOPS = (
    "tests/telemetry/test_one_trace.py",
    "tests/governed/test_at_the_simulators.py",
    "tests/e2e/test_payments_under_fire.py",
    "tests/chaos/test_short_chaos.py",
    "tests/crash/test_matrix.py",
    "tests/e2e/test_recovery_times.py",
    "tests/e2e/test_rolling_restart.py",
    "tests/e2e/test_online_migrations.py",
    "tests/e2e/test_down_and_up.py",
    "tests/browser/test_what_operators_know.py",
    "tests/browser/test_outage_story_browser.py",
    "tests/stack/test_demo.py",
    "tests/governed/test_poisonous_orders.py",
    "tests/e2e/test_one_orders_life.py",
    "tests/e2e/test_database_roles.py",
    "tests/console/test_capacity.py",
    "tests/browser/test_storefront_browser.py",
    "tests/browser/test_shopfront_browser.py",
    "tests/hazards/test_deaf_workers.py",
    "tests/e2e/test_deploys.py",
    "tests/rabbitmq/test_users.py",
    "tests/browser/test_parcels_browser.py",
    "tests/browser/test_reserved_browser.py",
    "tests/hazards/test_zombies.py",
    "tests/e2e/test_failover.py",
    "tests/stack/test_pgbouncer.py",
    "tests/journal/test_roles.py",
    "tests/hazards/test_restart_of_everything.py",
)
# Files that use another file's shop go to that file's process.
WITH = {"tests/rabbitmq/test_remote_control.py": "tests/rabbitmq/test_users.py"}
# These files are long, too.
LONG = (
    "tests/e2e/test_installed_engine.py",
    "tests/browser/test_console_axe.py",
    "tests/simulation/test_interleavings.py",
    "tests/stack/test_migrate_interrupted.py",
    "tests/stack/test_going_back.py",
    "tests/stack/test_bootstrap.py",
    "tests/mutants/test_mutants.py",
    "tests/crash/test_graph_matrix.py",
    "tests/browser/test_console_browser.py",
    "tests/commands/test_command_line.py",
    "tests/test_no_english.py",
    "tests/test_site.py",
    "tests/stack/test_migrate.py",
    "tests/commands/test_role_commands.py",
    "tests/workflows/test_resume_races.py",
    "tests/stack/test_tls.py",
    "tests/engine/test_audit.py",
    "tests/test_catalogues.py",
    "tests/orders/test_refunds_paid_again.py",
    "tests/orders/test_order_admin_verbs.py",
    "tests/intake/test_deliveries.py",
    "tests/intake/test_poison.py",
    "tests/engine/test_celery_wiring.py",
    "tests/simulation/test_small_model.py",
    "tests/simulation/test_store_machine.py",
    "tests/simulation/test_two_databases.py",
    "tests/orders/test_failed_refunds.py",
    "tests/orders/test_refund_parts.py",
    "tests/workflows/test_move_races.py",
    "tests/workflows/test_killed_families.py",
    "tests/workflows/test_killed_workers.py",
    "tests/browser/test_second_factor_browser.py",
    "tests/stack/test_settings.py",
    "tests/stack/test_request_log.py",
    "tests/stack/test_many_starts.py",
    "tests/privacy/test_killed.py",
)
SHOPS_AT_ONCE = 2  # more would slow each other past their deadlines
# What starts roles, workers, commands or a browser gets the mark `slow`: `./run test` without arguments leaves it out.
SLOW = (
    *(f"tests/{folder}/" for folder in ("browser", "chaos", "crash", "e2e", "governed", "hazards", "mutants", "rabbitmq", "stack")),
    "tests/commands/test_broker_commands.py",
    "tests/commands/test_command_line.py",
    "tests/commands/test_role_commands.py",
    "tests/console/test_capacity.py",
    "tests/console/test_other_accounts.py",
    "tests/engine/test_celery_wiring.py",
    "tests/engine/test_jobs_killed.py",
    "tests/engine/test_outage_of_a_day.py",
    "tests/intake/test_amqp.py",
    "tests/intake/test_deliveries.py",
    "tests/intake/test_poison.py",
    "tests/journal/test_killed_writers.py",
    "tests/journal/test_roles.py",
    "tests/outbound/test_frozen_senders.py",
    "tests/privacy/test_killed.py",
    "tests/simulation/test_two_databases.py",
    "tests/simulators/test_ledger.py",
    "tests/telemetry/test_one_trace.py",
    "tests/telemetry/test_tracing.py",
    "tests/test_no_english.py",
    "tests/test_site.py",
    "tests/workflows/test_killed_branches.py",
    "tests/workflows/test_killed_families.py",
    "tests/workflows/test_killed_workers.py",
    "tests/workflows/test_resume_races.py",
)


class FewShopsAtATime(LoadScopeScheduling):  # type: ignore[misc]
    """Distribute files over pytest-xdist's processes; long files begin first, and at most two processes run whole shops."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return WITH.get(file, file)

    def _assign_work_unit(self, node: Any) -> None:
        others = [work for other, work in self.assigned_work.items() if other is not node]
        busy = sum(any(file in WHOLE_SHOPS and not all(done.values()) for file, done in work.items()) for work in others)
        first = (*WHOLE_SHOPS, *LONG) if busy < SHOPS_AT_ONCE else LONG
        last = () if busy < SHOPS_AT_ONCE else WHOLE_SHOPS
        for file in (*reversed(first), *last):
            if file in self.workqueue:
                self.workqueue.move_to_end(file, last=file in last)
        super()._assign_work_unit(node)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the server, unless DATABASE_URL names one."""
    global _server
    if _state_dir is None or session.config.option.collectonly:
        return
    _server = EmbeddedPostgres(_state_dir, fast=True)
    try:
        _start(_server, Path(_state_dir), _kept(session.config))
    except EmbeddedPostgresError as problem:
        pytest.exit(f"no database for the tests: {problem}", returncode=3)


def _kept(config: pytest.Config) -> Path | None:
    """Where the data of a migrated server is kept between sessions; None where pytest or PostgreSQL cannot keep it."""
    cache, binaries = getattr(config, "cache", None), find_binaries()
    if cache is None or find_identity(binaries).uid is not None:
        return None
    digest = hashlib.sha256(str(binaries.directory).encode())
    for path in sorted(ROOT.glob("*/migrations/*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return Path(cache.mkdir("postgres")) / digest.hexdigest()[:16]


def _start(server: EmbeddedPostgres, state_dir: Path, kept: Path | None) -> None:
    """Start the server on a copy of the kept data. Without it: migrate the template, and keep the data of the stopped server."""
    if kept is not None and kept.exists():
        shutil.copytree(kept, state_dir / "pg", symlinks=True)
        server.start()
        return
    server.start()
    with server._connect() as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE}")
    migrate = [sys.executable, "-W", "ignore", "manage.py", "migrate", "--verbosity", "0"]
    env = {**os.environ, "DATABASE_URL": database_url(state_dir, TEMPLATE), "DEBUG": "1"}
    done = subprocess.run(migrate, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EmbeddedPostgresError(f"the migrations failed: {done.stderr}")
    if kept is None:
        return
    server.stop()
    for older in kept.parent.iterdir():
        shutil.rmtree(older, ignore_errors=True)
    fresh = kept.with_name(f"{kept.name}.{os.getpid()}")
    shutil.copytree(server.data_dir, fresh, symlinks=True)
    with suppress(OSError):  # another session was first
        fresh.rename(kept)
    server.start()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server and delete its data, after all other plugins have closed their connections."""
    if _server is not None:
        _server.stop()
        shutil.rmtree(_server.socket_dir, ignore_errors=True)
    for mine in filter(None, (_state_dir, _journal_dir)):
        shutil.rmtree(mine, ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--shuffle`, which shows whether a test depends on what another file left behind."""
    parser.addoption("--shuffle", metavar="SEED", help="run the files in a random order, the same for the same seed")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of `SLOW`."""
    if item.nodeid.startswith(SLOW):
        item.add_marker("slow")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files in the order of the seed, after pytest-django has sorted the tests by how they use the database."""
    if (seed := config.getoption("shuffle")) is not None:
        items.sort(key=lambda item: hashlib.sha256(f"{seed} {item.path}".encode()).digest())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect no garbage while modules are imported and tests are collected: all of that lives until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what was imported, which lives until the end."""
    gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FewShopsAtATime | None:
    """The scheduler for `--dist loadfile`, which keeps files together."""
    return FewShopsAtATime(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Replace half characters: pytest-xdist sends reports as UTF-8, and one in a test's log would end the whole run."""
    return _encodable((yield))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return type(value)(map(_encodable, value)) if isinstance(value, list | tuple) else value


def pytest_report_header(config: pytest.Config) -> str:
    """The database of this session."""
    return f"database: {'embedded PostgreSQL' if _state_dir is not None else 'DATABASE_URL'}"
