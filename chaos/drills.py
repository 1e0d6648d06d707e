"""`./run drill NAME`: what an operator practises before the day it is needed, on real servers of this machine.

failover: a whole shop on a primary and a streaming replica, by a URL with both hosts. The primary is killed, the replica is
promoted, customers go on ordering. Measured: the first order accepted after the promotion. Proven: no process was restarted,
no customer was charged twice, and with a synchronous replica (the default) every accepted order is there. An asynchronous
replica has fallen behind before: accepted orders are lost, customers repeat them, and `manage.py reconcile` finds what they did.

restore: a base backup and an archive of the log. The server is lost and restored to a point in time. Customers repeat the lost
orders, and an operator settles the findings of `manage.py reconcile`.

restart: every process of a shop is ended by SIGTERM and replaced, one after the other, while customers order. Proven: no customer
saw an error, and every order was done once. Measured: the 99th percentile of their answers, before and during the restart.

migrations: the tables of release 0.1.0 with many rows. `manage.py migrate` brings them up to date while orders are taken there.
Measured, for each migration: its duration, the longest statement that a client had meanwhile, and its locks.

upgrade: the code and the tables of an older release, which git holds under `--from`. The tables are migrated, every process is
replaced by today's code, by the older code again and by today's, while customers order and processes of both are killed. Proven:
no customer saw an error, and every order was done once.

guessing: twelve at once try wrong passwords at every page that asks for one. Proven: at most nine are looked at. Measured: how
long the page of a product takes meanwhile, against a quiet shop.

Exit code 0: everything held. 1: the lines below the table name what did not.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg

from chaos import guessing, migrations, restarting, upgrading
from chaos.brokers import broker_of
from chaos.failover import PROCESSES, Customers, judge, rest, settle, start_again_who_ended
from chaos.look import until
from chaos.old_tables import EVENTS_PER_ORDER
from chaos.replica import Follower
from chaos.shop import Shop
from supervision.embedded.server import EmbeddedPostgres

WARM_SECONDS = 5.0
NOTICED_SECONDS = 1.0  # what a site's failover takes to notice; not part of the figure
BEHIND_SECONDS = 3.0  # an asynchronous replica has fallen behind by the time of a whole order, and by this
AFTER_SECONDS = 8.0
WITHIN_SECONDS = 5.0  # from the promotion to the first accepted order

_NAMELESS = """
SELECT application_name || ' ' || left(query, 60) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name NOT LIKE 'sas:%%:%%'
"""
_NEWEST = "SELECT coalesce(max(id), 0), coalesce(max(id) FILTER (WHERE process_state = 'Processed'), 0) FROM supervision_run"
_MOMENT = "SELECT clock_timestamp()::text"
Result = tuple[dict[str, Any], list[str]]


def failover(directory: Path, *, rate: float, synchronous: bool, broker: str, seconds: float = AFTER_SECONDS) -> Result:
    """Run the drill once; returns its figures, and one line for each thing that is wrong."""
    with ExitStack() as stack:
        postgres, follower, shop = _site(stack, directory, broker, replica=True)
        if synchronous:
            _configure(postgres, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        say(f"the shop runs; {rate:g} orders a second")
        pids = {name: process.pid for name, process in shop.processes.items()}
        customers = Customers(shop, rate)
        customers.start()
        time.sleep(WARM_SECONDS)
        if not synchronous:
            say("the replica falls behind")
            follower.cut()
            before = shop.rows(_NEWEST)[0][0]
            until(lambda: shop.rows(_NEWEST)[0][1] > before, within=120, what="an order that the replica does not know and that ended")
            time.sleep(BEHIND_SECONDS)
        say("killing the primary, promoting the replica")
        nameless = [name for (name,) in shop.rows(_NAMELESS)]
        promoted = follower.promote(NOTICED_SECONDS)
        time.sleep(seconds)
        customers.stop()
        later = [at - promoted for one in customers.all for at in one.accepted_at if at > promoted]
        lost = customers.order_lost_ones_again()
        say("waiting until every order has ended")
        ended = [name for name, process in shop.processes.items() if process.poll() is not None or process.pid != pids[name]]
        rest(shop)
        kinds, settled = settle(shop)
        figures = {
            "replica": "synchronous" if synchronous else "asynchronous",
            "first order after the promotion, s": round(min(later), 2) if later else None,
            "customers": len(customers.all),
            "accepted orders lost": lost,
            "findings of reconcile": dict(kinds),
            "settled": settled,
            "processes that ended": len(ended),
            "connections without a name": nameless,
        }
        wrong = [f"a connection has no name: {one}" for one in nameless]
        wrong += [f"{name} ended: {shop.log(name)[-300:]}" for name in ended]
        if not later or min(later) > WITHIN_SECONDS:
            wrong.append(f"no order was accepted within {WITHIN_SECONDS:g} s of the promotion")
        if synchronous and lost:
            wrong.append(f"{lost} accepted orders are lost, with a synchronous replica")
        if not synchronous and not lost:
            wrong.append("nothing was lost: the drill proves nothing")
        return _judged(shop, customers, figures, wrong)


def restore(directory: Path, *, rate: float, broker: str, lost_seconds: float = 3.0) -> Result:
    """Run the drill once; returns its figures, and one line for each thing that is wrong."""
    with ExitStack() as stack:
        postgres, follower, shop = _site(stack, directory, broker, replica=False)
        archive = postgres.data_dir.with_name(postgres.data_dir.name + "-archive")
        say("taking the base backup")
        follower.back_up()
        customers = Customers(shop, rate)
        customers.start()
        time.sleep(WARM_SECONDS)
        told_before = time.monotonic()
        moment = _value(postgres, _MOMENT)
        say(f"restoring to {moment}; what follows is lost")
        time.sleep(lost_seconds)
        _archived(postgres)
        shop.kill9(*PROCESSES)
        began = time.monotonic()
        follower.restore_to(moment, archive)
        restored = time.monotonic() - began
        start_again_who_ended(shop)
        time.sleep(WARM_SECONDS)
        customers.stop()
        lost = customers.order_lost_ones_again()
        say("waiting until every order has ended")
        rest(shop)
        kinds, settled = settle(shop)
        figures = {
            "restored to": moment,
            "restored in, s": round(restored, 1),
            "customers": len(customers.all),
            "accepted orders lost and repeated": lost,
            "findings of reconcile": dict(kinds),
            "settled": settled,
        }
        wrong = [] if lost else ["nothing was lost: the drill proves nothing"]
        early = [one for one in customers.lost if one.accepted_at[0] < told_before]
        wrong += [f"{len(early)} orders that were accepted before the moment are lost"] if early else []
        return _judged(shop, customers, figures, wrong)


def restart(directory: Path, *, rate: float, broker: str) -> Result:
    """Run the drill once; returns its figures, and one line for each thing that is wrong."""
    with ExitStack() as stack:
        _, _, shop = _site(stack, directory, broker, processes=restarting.PROCESSES)
        say(f"the shop runs; {rate:g} orders a second, and in {restarting.CALM_SECONDS:g} s the restart")
        return restarting.drill(shop, rate=rate)


def upgrade(directory: Path, old: Path, *, rate: float, broker: str) -> Result:
    """Run the drill once; returns its figures, and one line for each thing that is wrong."""
    with ExitStack() as stack:
        _, _, shop = _site(stack, directory, broker, processes=None)
        return upgrading.drill(shop, old, rate=rate, say=say)


def guess(directory: Path, *, broker: str) -> Result:
    """Run the drill once; returns its figures, and one line for each thing that is wrong."""
    with ExitStack() as stack:
        _, _, shop = _site(stack, directory, broker, processes=("web",))
        return guessing.drill(shop, say=say)


# -------------------------------------------------------------------------------------------------------------- pieces


def _site(
    stack: ExitStack, directory: Path, broker: str, *, replica: bool | None = None, processes: Sequence[str] | None = PROCESSES
) -> tuple[EmbeddedPostgres, Follower, Shop]:
    """A primary, with a replica, or without (False) but with an archive of its log, and a whole shop on it. All end with the stack.

    processes: None starts neither simulators nor roles, on an empty database.
    """
    directory.mkdir(parents=True, exist_ok=True)
    say("starting PostgreSQL and the shop")
    postgres = EmbeddedPostgres(directory / "postgres")
    postgres.start()
    stack.callback(postgres.stop)
    follower = Follower(postgres)
    stack.callback(follower.close)
    if replica:
        follower.start()
    elif replica is False:
        _archive(postgres)
    url = follower.url_of_both if replica else postgres.url
    bus = stack.enter_context(broker_of(broker, url, directory))
    shop = Shop(
        url,
        bus.url,
        directory,
        first_port=24000,
        SUPERVISION_SWEEP_SECONDS="1",
        SUPERVISION_COMPLETE_WITHIN="5",
        BANK_ACCOUNT="Shop, IT00 DRILL",
    )
    stack.callback(shop.close)
    if processes is not None:
        shop.open(*processes)
    return postgres, follower, shop


def _archive(postgres: EmbeddedPostgres) -> None:
    """Let the server archive its log beside its data. That needs a restart."""
    archive = postgres.data_dir.with_name(postgres.data_dir.name + "-archive")
    postgres.make_directory(archive)
    _configure(postgres, "ALTER SYSTEM SET archive_mode = on", f"ALTER SYSTEM SET archive_command = 'cp %p {archive}/%f'")
    postgres.stop()
    postgres.start()


def _archived(postgres: EmbeddedPostgres) -> None:
    """Begin a new segment of the log, and wait until the one before is archived."""
    segment = _value(postgres, "SELECT pg_walfile_name(pg_switch_wal())")
    until(lambda: (_value(postgres, "SELECT last_archived_wal FROM pg_stat_archiver") or "") >= segment, within=60, what="the archive")


def _configure(postgres: EmbeddedPostgres, *statements: str) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        for statement in (*statements, "SELECT pg_reload_conf()"):
            connection.execute(statement)  # type: ignore[arg-type]


def _value(postgres: EmbeddedPostgres, query: str) -> Any:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        row = connection.execute(query).fetchone()  # type: ignore[arg-type]
    return row[0] if row else None


def _judged(shop: Shop, customers: Customers, figures: dict[str, Any], wrong: list[str]) -> Result:
    audit = shop.manage("audit", check=False)
    left = json.loads(shop.manage("reconcile", "--json", check=False) or "[]")
    wrong += [f"reconcile: {one}" for one in (left["findings"] if isinstance(left, dict) else left)]
    wrong += list(judge(shop, customers.all))
    wrong += [] if "all hold" in audit else [f"audit: {line}" for line in audit.splitlines()]
    return figures, wrong


def say(text: str) -> None:
    """Progress, to standard error."""
    print(f"drill: {text}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Read the command line, run the drill and print its table."""
    parser = argparse.ArgumentParser(prog="./run drill", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drill", choices=["failover", "restore", "restart", "migrations", "upgrade", "guessing"])
    parser.add_argument("--rate", type=float, default=20.0, help="orders per second (20)")
    parser.add_argument("--asynchronous", action="store_true", help="failover: the replica has fallen behind, so orders are lost")
    parser.add_argument("--broker", choices=["amqp", "redis", "pgmq"], default="pgmq", help="(pgmq)")
    parser.add_argument("--rows", type=int, default=10_000_000, help="migrations: events of orders in the tables (10,000,000)")
    parser.add_argument("--most-ms", type=float, default=migrations.MOST_MS, help="migrations: a longer stall is wrong (200)")
    parser.add_argument("--from", dest="revision", metavar="REVISION", help="upgrade: git's name of the older release")
    parser.add_argument("--directory", type=Path, help="where logs go (var/drills/...)")
    given = parser.parse_args(arguments)
    if given.rate <= 0:
        parser.error("--rate must be above 0")
    if given.rows < EVENTS_PER_ORDER:
        parser.error(f"--rows must be {EVENTS_PER_ORDER} or more: these are the events of an order")
    if (given.drill == "upgrade") != bool(given.revision):
        parser.error("upgrade needs --from, and no other drill takes it")
    signal.signal(signal.SIGTERM, _leave)
    usual = Path(__file__).resolve().parent.parent / "var" / "drills" / time.strftime(f"{given.drill}-%Y%m%d-%H%M%S")
    directory = (given.directory or usual).resolve()
    try:
        old = upgrading.older(directory, given.revision) if given.revision else directory
    except ValueError as unknown:
        parser.error(f"--from: {unknown}")
    drill: dict[str, Callable[[], Result]] = {
        "failover": lambda: failover(directory, rate=given.rate, synchronous=not given.asynchronous, broker=given.broker),
        "restore": lambda: restore(directory, rate=given.rate, broker=given.broker),
        "restart": lambda: restart(directory, rate=given.rate, broker=given.broker),
        "guessing": lambda: guess(directory, broker=given.broker),
        "upgrade": lambda: upgrade(directory, old, rate=given.rate, broker=given.broker),
        "migrations": lambda: migrations.drill(directory, events=given.rows, rate=given.rate, most_ms=given.most_ms, say=say),
    }
    figures, wrong = drill[given.drill]()
    for name, value in figures.items():
        print(f"{name:40} {value}")
    for line in wrong:
        print(f"WRONG: {line}")
    print(f"{'held' if not wrong else f'{len(wrong)} things are wrong'}; logs: {directory}")
    return int(bool(wrong))


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
