"""Injects the planned faults and ends each of them when its time is over. It runs in the main thread, because it restarts
PostgreSQL: the kernel ends the server when the thread that started it ends.
"""

from __future__ import annotations

import heapq
import itertools
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import amqp
import httpx2
import psycopg
import redis
from kombu.exceptions import KombuError

from chaos.brokers import Broker
from chaos.journal import Journal
from chaos.look import TLS
from chaos.plan import Fault
from chaos.shop import Shop
from supervision.embedded.server import EmbeddedPostgres

LOOK_SECONDS = 0.1
RESPAWN_SECONDS = 1.0  # the time a service manager takes to restart a process that ended by itself


class Nemesis:
    """Injects the faults of one run, each at its time."""

    def __init__(self, shop: Shop, postgres: EmbeddedPostgres, broker: Broker, journal: Journal) -> None:
        self.shop, self.postgres, self.broker, self.journal = shop, postgres, broker, journal
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._dead: set[str] = set()  # processes that have ended and that this class starts again later
        self._frozen: dict[str, int] = {}
        self._poison: dict[str, Any] = {}
        self._began = time.monotonic()

    def run(self, faults: Sequence[Fault], length: float) -> None:
        """Inject all of them; returns after `length` seconds, when every fault has been ended."""
        self._began = time.monotonic()
        for fault in faults:
            self._at(fault.at, lambda fault=fault: self._commit(fault))  # type: ignore[misc]
        while time.monotonic() - self._began < length:
            self.turn()
        self.heal()

    def turn(self) -> None:
        """Do the actions that are due, restart processes that have ended, and wait a moment."""
        while self._due and self._due[0][0] <= time.monotonic() - self._began:
            heapq.heappop(self._due)[2]()
        self.look_after()
        time.sleep(LOOK_SECONDS)

    def heal(self) -> None:
        """End every fault that still lasts."""
        for name in list(self._frozen):
            self._frozen[name] = 1
            self._thaw(name)
        self._due.clear()
        self._poison = {}
        for name in list(self._dead):
            self._start(name)
        if self.postgres.pid is None:
            self.postgres.start()
        self._heal_services(None)
        self.journal.note("nemesis", "healed")

    def look_after(self) -> None:
        """Restart processes that have ended by themselves, as a service manager would."""
        for name, process in list(self.shop.processes.items()):
            if name not in self._dead and process.poll() is not None:
                self.journal.note("nemesis", "ended-by-itself", name=name, code=process.returncode)
                self._dead.add(name)
                self._later(RESPAWN_SECONDS, lambda name=name: self._start(name))  # type: ignore[misc]

    # -------------------------------------------------------------------------------------------------- one fault

    def _at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._number), act))

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._at(time.monotonic() - self._began + seconds, act)

    def _commit(self, fault: Fault) -> None:
        facts: dict[str, Any] = {"kind": fault.kind, "targets": fault.targets, "seconds": fault.seconds, **fault.details}
        self.journal.note("nemesis", "begin", at=fault.at, **facts)
        try:
            done = self._act(fault)
        except (OSError, RuntimeError, psycopg.Error, httpx2.HTTPError, KombuError, redis.RedisError, amqp.AMQPError) as error:
            # For example, a database that is just restarting refuses the connection. The fault then counts as missed.
            self.journal.note("nemesis", "missed", kind=fault.kind, error=f"{type(error).__name__}: {error}"[:200])
            return
        if fault.seconds:
            self._later(fault.seconds, lambda: self.journal.note("nemesis", "end", kind=fault.kind, targets=fault.targets))
        else:
            self.journal.note("nemesis", "end", kind=fault.kind, targets=fault.targets, result=done)

    def _act(self, fault: Fault) -> Any:
        match fault.kind.partition("-")[0]:
            case "kill" if fault.kind != "kill-backends":
                self._kill(fault)
            case "kill":
                return self._kill_backends(fault.details["share"])
            case "backlog":
                self._kill(fault)  # orders pile up, and then all consumers start at the same moment
            case "freeze":
                self._freeze(fault)
            case "postgres":
                self._restart_postgres()
            case "broker":
                return getattr(self.broker, fault.kind.removeprefix("broker-"))()
            case "replay":
                return self.broker.replay()
            case "service":
                self._break_service(fault)
            case "poison":
                self._poison = {"service": fault.targets[0], **fault.details}
                self._poison_again()
            case "forget":
                httpx2.post(f"{self.shop.simulators_url}/forget/{fault.targets[0]}", timeout=5, verify=TLS).raise_for_status()
        return None

    def _kill(self, fault: Fault) -> None:
        names = [name for name in fault.targets if name not in self._dead]
        for name in names:
            self.shop.signal(name, signal.SIGKILL)
        for name in names:
            self._dead.add(name)
            self.shop.processes[name].wait(10)
            self._later(fault.seconds, lambda name=name: self._start(name))  # type: ignore[misc]

    def _start(self, name: str) -> None:
        if name in self._dead:
            self._dead.discard(name)
            self.shop.spawn(name)
            if name == "simulators":
                self._poison_again()

    def _freeze(self, fault: Fault) -> None:
        for name in fault.targets:
            if name in self._dead:
                continue
            self._frozen[name] = self._frozen.get(name, 0) + 1
            self.shop.signal(name, signal.SIGSTOP)
            self._later(fault.seconds, lambda name=name: self._thaw(name))  # type: ignore[misc]

    def _thaw(self, name: str) -> None:
        """Continue the process, unless another fault still freezes it."""
        left = self._frozen.get(name, 0) - 1
        if left > 0:
            self._frozen[name] = left
            return
        self._frozen.pop(name, None)
        self.shop.signal(name, signal.SIGCONT)

    def _restart_postgres(self) -> None:
        """Stop PostgreSQL at once, as a crash of the machine would, and start it. It has to recover from its log."""
        process = self.postgres.process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGQUIT)
            process.wait(30)
        self.postgres.start()

    def _kill_backends(self, share: float) -> int:
        with psycopg.connect(self.shop.database_url, autocommit=True, connect_timeout=5, options="-c statement_timeout=5000") as connection:
            rows = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
                " AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND random() < %s",
                [share],
            ).fetchall()
        return len(rows)

    def _break_service(self, fault: Fault) -> None:
        self.shop.fault(service=fault.targets[0], until=fault.seconds, **fault.details)

    def _poison_again(self) -> None:
        """Tell the simulators which orders they fail for, because a restart clears their faults. Try until they answer."""
        if not self._poison:
            return
        try:
            self.shop.fault(**self._poison)
        except httpx2.HTTPError:
            self._later(LOOK_SECONDS, self._poison_again)

    def _heal_services(self, service: str | None) -> None:
        query = f"?service={service}" if service else ""
        for _ in range(50):
            with suppress(httpx2.HTTPError):
                if httpx2.delete(f"{self.shop.simulators_url}/faults{query}", timeout=5, verify=TLS).status_code < 300:
                    return
            self.turn()
