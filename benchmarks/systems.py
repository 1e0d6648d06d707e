"""The measured systems: our engine in a few configurations, and the peers, each configured as its users would do it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.children import Command
from benchmarks.environment import PYTHON
from benchmarks.lab import Lab, our_settings
from sasproject.roles import procfile

PLAIN = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")


@dataclass(frozen=True)
class System:
    """One system in one setting. window: orders outstanding in the closed loop; wide: the same with slow steps."""

    name: str
    title: str
    kind: str | None  # which tables it has; None: no database
    client: str
    window: int
    wide: int
    broker: str | None = None
    threads: int = 1
    bulk: int = 1
    durable: str = "yes"
    roles: Mapping[str, int] = field(default_factory=dict)  # our engine's: processes of each role
    env: Mapping[str, str] = field(default_factory=dict)
    tuned: Mapping[str, str] = field(default_factory=dict)  # additional variables with slow steps
    words: Sequence[str] = ()  # the command of a peer's worker
    wide_words: Sequence[str] = ()  # the same with slow steps
    processes: int = 1
    delay_ms: float | None = None  # how much longer a round trip to database and broker takes; None: there is no network
    apart: bool = False  # each agents process has links of its own, as if it were on a host of its own

    @property
    def is_ours(self) -> bool:
        """Whether it is our engine."""
        return self.kind == "ours"

    @property
    def peer(self) -> str | None:
        """The peer that has to be installed; None for our engine."""
        return None if self.is_ours else self.name.partition("+")[0]

    def missing(self, lab: Lab) -> str | None:
        """Why it cannot be measured here; None if it can."""
        if self.peer and self.peer in lab.peers.missing:
            return lab.peers.missing[self.peer]
        return lab.missing.get(self.broker or "")

    def environment(self, lab: Lab, *, slow: bool) -> dict[str, str]:
        """The environment variables of its processes."""
        env = {**self.env, **(self.tuned if slow else {}), "BENCH_SLEEP": "0.02" if slow else "0"}
        if self.broker:
            env["CELERY_BROKER_URL"] = lab.broker_url(self.broker) or ""
        if self.is_ours:
            return {**our_settings(), "DATABASE_URL": lab.url("ours"), "DJANGO_SETTINGS_MODULE": "benchmarks.settings", **env}
        if self.kind:
            env |= {**lab.pg_env(self.kind), "DBOS_URL": lab.url(self.kind, host_last=True)}
        return env

    def workers(self, lab: Lab, *, slow: bool, host: Callable[[str], Lab] | None = None) -> list[Command]:
        """The commands of its worker processes. host: the lab as it is seen from another host of this name."""
        env = self.environment(lab, slow=slow)
        if self.is_ours:
            lines = procfile()

            def env_of(role: str, number: int) -> dict[str, str]:
                return self.environment(host(f"{role}-{number}"), slow=slow) if host and role == "agents" else env

            return [
                Command(f"worker-{role}-{n}", ["/bin/sh", "-c", lines[role]], {**env_of(role, n), "SAS_ROLE": role})
                for role, count in self.roles.items()
                for n in range(count)
            ]
        words = [*((slow and self.wide_words) or self.words)]
        return [Command(f"worker-{n}", [word.replace("{n}", str(n)) for word in words], env) for n in range(self.processes)]

    def load(self, lab: Lab, *arguments: str, slow: bool = False, env: Mapping[str, str] | None = None) -> Command:
        """The command of the process that submits."""
        python = sys.executable if self.is_ours else str(PYTHON)
        words = [python, "-W", "ignore", "-m", "benchmarks.client", self.client, "--bulk", str(self.bulk), *arguments]
        return Command("client", words, {**self.environment(lab, slow=slow), "SAS_ROLE": "client", **(env or {})})


EVERY_ROLE = {"scheduler": 1, "agents": 1, "supervisor": 1, "beat": 1}
WIDE_CALLS = {"BENCH_AGENT_THREADS": "128"}


def _celery(application: str, pool: str, concurrency: int) -> tuple[str, ...]:
    worker = ("-m", "celery", "-A", application, "worker", "-n", "w{n}@bench", "-P", pool, "-c", str(concurrency))
    return (str(PYTHON), *worker, *PLAIN)


OURS = System(
    "ours-4",
    "this engine, 4 client threads",
    kind="ours",
    client="benchmarks.noop.client",
    window=2000,
    wide=4000,
    broker="amqp",
    threads=4,
    roles=EVERY_ROLE,
    tuned=WIDE_CALLS,
)
OURS_1 = replace(OURS, name="ours-1", title="this engine, 1 client thread", threads=1)
OURS_SCHEDULED = replace(OURS, name="ours-scheduled", title="this engine, local pick-up off", env={"SUPERVISION_LOCAL_PICKUP": "0"})
OURS_BRANCHES = replace(OURS, name="ours-branches", title="two branches of two steps side by side", env={"BENCH_WORKFLOW": "noop-branches"})
OURS_WAITING = replace(
    OURS, name="ours-waiting", title="a wait for a signal, sent in a commit of its own", env={"BENCH_WORKFLOW": "noop-waiting"}
)
OURS_BULK = replace(OURS, name="ours-bulk", title="this engine, 200 orders per commit", threads=1, bulk=200, window=4000)
OURS_EFFECT = replace(OURS, name="ours-effect", title="this engine, one step with a ledger row", env={"BENCH_EFFECTS": "payment"})
OURS_EFFECTS = replace(
    OURS, name="ours-effects", title="this engine, every step with a ledger row", env={"BENCH_EFFECTS": "stock,payment,shipping,email"}
)
OURS_PGMQ = replace(OURS, name="ours-pgmq", title="this engine on pgmq", broker="pgmq")
OURS_REDIS = replace(OURS, name="ours-redis", title="this engine on Redis", broker="redis")

CHAIN = System(
    "chain",
    "Celery chain, prefork 2",
    kind=None,
    client="benchmarks.peers.chain",
    window=200,
    wide=400,
    broker="amqp",
    durable="no",
    words=_celery("benchmarks.peers.chain", "prefork", 2),
    wide_words=_celery("benchmarks.peers.chain", "threads", 128),
)
USUAL = System(
    "usual",
    "Django + Celery, threads 32",
    kind="usual",
    client="benchmarks.peers.usual.tasks",
    window=200,
    wide=400,
    broker="amqp",
    words=_celery("benchmarks.peers.usual.tasks", "threads", 32),
    wide_words=_celery("benchmarks.peers.usual.tasks", "threads", 64),
)
DBOS = System(
    "dbos",
    "DBOS, 2 processes, 16 threads each",
    kind="dbos",
    client="benchmarks.peers.dbos_orders",
    window=200,
    wide=400,
    words=(str(PYTHON), "-m", "benchmarks.peers.dbos_orders"),
    tuned={"DBOS_THREADS": "64", "DBOS_CONCURRENCY": "100", "DBOS_POLL": "0.05"},
    processes=2,
)
PROCRASTINATE = System(
    "procrastinate",
    "Procrastinate, 1 worker, concurrency 50",
    kind="procrastinate",
    client="benchmarks.peers.procrastinate_orders",
    window=200,
    wide=400,
    durable="job rows",
    words=(str(PYTHON), "-m", "benchmarks.peers.procrastinate_orders", "worker"),
    tuned={"PROCRASTINATE_CONCURRENCY": "128"},
)
RESTATE = System(
    "restate",
    "Restate, 1 endpoint process",
    kind=None,
    client="benchmarks.peers.restate_orders",
    window=500,
    wide=1000,
    durable="yes (own log)",
    words=(str(PYTHON), "-m", "benchmarks.peers.restate_orders"),
)
ABSURD = System(
    "absurd",
    "Absurd, 2 workers of 16",
    kind="absurd",
    client="benchmarks.peers.absurd_orders",
    window=200,
    wide=400,
    words=(str(PYTHON), "-m", "benchmarks.peers.absurd_orders"),
    tuned={"ABSURD_THREADS": "64"},
    processes=2,
)

SYSTEMS = {
    each.name: each
    for each in (
        OURS_1,
        OURS,
        OURS_SCHEDULED,
        OURS_BULK,
        OURS_EFFECT,
        OURS_EFFECTS,
        OURS_BRANCHES,
        OURS_WAITING,
        OURS_PGMQ,
        OURS_REDIS,
        CHAIN,
        USUAL,
        DBOS,
        PROCRASTINATE,
        RESTATE,
        ABSURD,
    )
}
PEERS = ("chain", "usual", "dbos", "procrastinate", "restate", "absurd")
FAR_THREADS = 16  # a thread that submits waits for the network most of the time


def behind(system: System, delay_ms: float) -> System:
    """This system with a network between it and its database and broker. Its client has as many threads as that of every other."""
    title = f"{system.title.removesuffix(f', {system.threads} client threads')}, {delay_ms:g} ms"
    return replace(system, name=f"{system.name}+{delay_ms:g}ms", title=title, delay_ms=delay_ms, threads=FAR_THREADS)


def on_hosts(count: int, delay_ms: float) -> System:
    """Our engine with so many agents processes, each behind a network of its own; the other roles share one."""
    return replace(behind(with_agents(count), delay_ms), apart=True)


def with_agents(count: int) -> System:
    """Our engine with so many agents processes, each with 32 calls at a time."""
    name = f"ours-agents-{count}"
    title = f"this engine, {count} agents process{'es' if count > 1 else ''}"
    return replace(OURS, name=name, title=title, roles={**EVERY_ROLE, "agents": count}, tuned={})
