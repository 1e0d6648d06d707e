"""The probes of `manage.py doctor`: can this installation work? Each probe yields findings that say what to do.

Other apps add probes of their own services in a module `doctor_probes`, which is found by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from typing import Any

from celery import current_app
from django.conf import settings
from django.core import checks
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Q
from django.utils.module_loading import autodiscover_modules
from django.utils.timezone import now
from django_celery_beat.models import PeriodicTask
from kombu.utils.url import maybe_sanitize_url
from psycopg.errors import InvalidSchemaName, UndefinedFunction, UndefinedTable

from supervision import conf
from supervision.models import Alert, Incident
from supervision.postgres import advice, db, fitness, pooling
from supervision.runtime.humanize import utc
from supervision.runtime.intervals import seconds_of
from supervision.sealing import rows as sealed_rows

OLDEST_POSTGRESQL = 14
CLOCKS_MAY_DIFFER = 2.0  # seconds; only the database's clock decides anything, but people compare logs
SILENT_AFTER = 30.0  # seconds without a heartbeat
SWEEP = "supervision.sweep"
SELDOM = 300.0  # seconds between two sweeps; after so long without one the alert SasNoSweep begins
SESSION = '"OPTIONS": {"options": "-c idle_in_transaction_session_timeout=10s -c jit=off"}'  # docs/installing.md has it, too
NEEDED_ROLES = ("scheduler", "agents", "supervisor", "beat")


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report; `advice` says what to set or start."""

    about: str
    level: Level
    message: str
    advice: str = ""


Probe = Callable[[], Iterable[Finding]]


@dataclass(frozen=True)
class _Registered:
    about: str
    probe: Probe
    needs_database: bool


_probes: dict[str, _Registered] = {}


def register(about: str, probe: Probe, *, needs_database: bool = False) -> None:
    """Register a probe under the name of its subject. Registering that name again replaces it."""
    _probes[about] = _Registered(about, probe, needs_database)


def examine() -> Iterator[Finding]:
    """Every probe's findings. A probe that raises is a finding too. Probes that need a database are skipped where it cannot be used."""
    autodiscover_modules("doctor_probes")
    reachable = True
    for registered in _probes.values():
        if registered.needs_database and not reachable:
            yield Finding(registered.about, Level.WARN, "not examined, because the database cannot be used")
            continue
        try:
            found = list(registered.probe())
        except Exception as problem:
            found = [Finding(registered.about, Level.FAIL, f"{type(problem).__name__}: {first_line(problem)}")]
        if registered.probe is database and found[0].level is Level.FAIL:
            reachable = False
        yield from found


def first_line(problem: BaseException) -> str:
    """The first line of an error's message."""
    said = str(problem).strip().splitlines()
    return said[0] if said else type(problem).__name__


def settings_are_sane() -> Iterator[Finding]:
    """Django's system checks, ours included, and whether this is a demo."""
    found = False
    for message in checks.run_checks(include_deployment_checks=not settings.DEBUG):
        if message.level < checks.WARNING or message.is_silenced():
            continue
        found = True
        level = Level.FAIL if message.is_serious() else Level.WARN
        yield Finding("settings", level, f"({message.id}) {first_line(Exception(message.msg))}", message.hint or "")
    if settings.DEBUG:
        yield Finding(
            "settings",
            Level.WARN,
            "DEBUG is on: demo values, and pages that show their source",
            "DEBUG=0, SECRET_KEY and ALLOWED_HOSTS for anything that is not a demo",
        )
    elif not found:
        yield Finding("settings", Level.OK, "no contradictions")


def database() -> Iterator[Finding]:
    """Whether the database is reachable, new enough, and as durable as the guarantees assume."""
    began = monotonic()
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('server_version_num')::int, current_setting('fsync'), "
                "current_setting('full_page_writes'), current_setting('synchronous_commit'), pg_is_in_recovery()"
            )
            version, fsync, full_page_writes, synchronous_commit, standby = cursor.fetchone()
    except DatabaseError as problem:
        todo = pooling.refused(str(problem)) or advice.after(str(problem)) or advice.current()
        yield Finding("database", Level.FAIL, first_line(problem), todo)
        return
    took = (monotonic() - began) * 1000
    if said := fitness.hidden():
        yield Finding("database", Level.FAIL, said, fitness.SEEN)
        return
    major = version // 10000
    if major < OLDEST_POSTGRESQL:
        yield Finding("database", Level.FAIL, f"PostgreSQL {major}", f"PostgreSQL {OLDEST_POSTGRESQL} or newer")
    else:
        yield Finding("database", Level.OK, f"PostgreSQL {major}, answers in {took:.0f} ms")
    if standby:
        yield Finding("database", Level.FAIL, "is a standby, which takes no writes", "connect to the primary instead")
    elif said := fitness.no_room():
        yield Finding("database", Level.FAIL, said, "free or add space on the server's disk, or let the database take writes again")
    for name, value in (
        ("fsync", fsync),
        ("full_page_writes", full_page_writes),
        ("synchronous_commit", synchronous_commit),
    ):
        if value == "off":
            text = f"{name} is off: a crash of the server may lose or break accepted orders"
            yield Finding("database", Level.FAIL, text, f"{name} = on in postgresql.conf")


def sessions() -> Iterator[Finding]:
    """Whether what needs a session reaches the server itself, and gets what our start-up parameters ask for."""
    wrong = pooling.flaw()
    if wrong is not None:
        yield Finding("sessions", Level.FAIL, *wrong.split(": ", 1))
        return
    through = pooling.way()
    yield Finding("sessions", Level.OK, "straight to the server" if through is pooling.Way.DIRECT else f"a pooler in {through} mode")
    pooled = "manage.py migrate sets it for its own role, database_roles --apply for web, worker and read; then RECONNECT in the pooler"
    if db.fetch("SELECT current_setting('idle_in_transaction_session_timeout')")[0][0] == "0":
        text = "idle_in_transaction_session_timeout is 0: a process that freezes in a transaction holds its locks for ever"
        yield Finding("sessions", Level.WARN, text, pooled if "direct" in settings.DATABASES else f'DATABASES["default"]: {SESSION}')
    for wanted, value in fitness.odd_settings():
        level = Level.FAIL if wanted.needed else Level.WARN
        own = f"ALTER DATABASE ... SET {wanted.name} = '{wanted.value}', also where a role has the setting; then start the roles again"
        todo = pooled if "direct" in settings.DATABASES else own
        yield Finding("sessions", level, f"{wanted.name} is {value}: {wanted.otherwise}", todo)


_LOSSES = {
    "off": "a crash or a failover may lose accepted orders: synchronous_commit is off",
    "local": "a failover may lose accepted orders: synchronous_commit is local, so no standby is waited for",
    "": "a failover may lose accepted orders: synchronous_standby_names is empty",
}
_EXCEPT = {"remote_write": ", unless the standby's machine crashes at the same moment"}


def failover() -> Iterator[Finding]:
    """What a failover may lose, by the server's settings."""
    [(commit, names, standbys, sees)] = db.fetch(
        "SELECT current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),"
        " (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),"
        " pg_has_role('pg_read_all_stats', 'USAGE')"  # without it the view has no states
    )
    kept = f"loses no accepted order{_EXCEPT.get(commit, '')}: synchronous_standby_names is {names}"
    loss = _LOSSES.get(commit) or (_LOSSES[""] if not names.strip() else None)
    if loss is not None:
        yield Finding("failover", Level.WARN, loss, "docs/operations.md, High availability: what each setting may lose")
    elif not sees:
        yield Finding("failover", Level.OK, f"{kept}; whether a standby is connected is shown to superusers and pg_monitor alone")
    elif not standbys:
        text = f"no synchronous standby is connected, so every commit waits: synchronous_standby_names is {names}"
        yield Finding("failover", Level.WARN, text, "start the standby")
    else:
        yield Finding("failover", Level.OK, kept)


def locks() -> Iterator[Finding]:
    """Whose locks hold others up, such as a session that was left open after an UPDATE, or a change of a table."""
    found = fitness.holders()
    for holder in found:
        todo = f"let it end its transaction; if it cannot, SELECT pg_terminate_backend({holder.pid})"
        yield Finding("locks", Level.WARN, str(holder), todo)
    if not found:
        yield Finding("locks", Level.OK, f"no session waits longer than {fitness.HELD_SECONDS:g} s")


def migrations() -> Iterator[Finding]:
    """Whether every migration of this code is applied."""
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        first = missing[0][0]
        text = f"{len(missing)} not applied, the first: {first.app_label}.{first.name}"
        yield Finding("migrations", Level.FAIL, text, "manage.py migrate")
    else:
        yield Finding("migrations", Level.OK, "all applied")


def clock() -> Iterator[Finding]:
    """This machine's clock compared with the database's, which alone decides anything."""
    with connection.cursor() as cursor:
        before = now()
        cursor.execute("SELECT clock_timestamp()")
        theirs = cursor.fetchone()[0]
        ours = before + (now() - before) / 2
    apart = (ours - theirs).total_seconds()
    if abs(apart) > CLOCKS_MAY_DIFFER:
        text = f"this machine is {apart:+.1f} s off the database; deadlines are not affected, logs are"
        yield Finding("clock", Level.WARN, text, "synchronise both with NTP")
    else:
        yield Finding("clock", Level.OK, f"within {max(abs(apart), 0.001):.3f} s of the database")


def broker() -> Iterator[Finding]:
    """Whether the broker is reachable with these credentials and takes messages. Without it orders are accepted and wait."""
    url = current_app.conf.broker_write_url
    address = maybe_sanitize_url(url) if "@" in url else url
    with current_app.connection_for_write() as link:
        try:
            link.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=5)
            refusal = getattr(link.default_channel, "refusal", str)()
        except Exception as problem:
            todo = "start the broker, or set CELERY_BROKER_URL (amqp://, redis:// or pgmq://)"
            if isinstance(problem, InvalidSchemaName | UndefinedTable | UndefinedFunction):
                todo = "manage.py migrate: it installs PGMQ in the database that CELERY_BROKER_URL names"
            yield Finding("broker", Level.FAIL, f"{address}: {first_line(problem)}", todo)
            return
    if refusal:
        todo = "end its alarm, or start it again; orders wait until then"
        yield Finding("broker", Level.FAIL, f"{address} takes no messages: {refusal}", todo)
    else:
        yield Finding("broker", Level.OK, f"{address} takes messages")


def roles() -> Iterator[Finding]:
    """Which roles have sent a heartbeat lately, by the database's clock."""
    rows = db.fetch(
        "SELECT role, detail->'queues', extract(epoch FROM clock_timestamp() - seen_at)::float8 FROM supervision_heartbeat ORDER BY seen_at"
    )
    ages = {played: age for role, queues, age in rows for played in roles_of(role, queues)}
    patience = max(SILENT_AFTER, 3 * conf.get().sweep_every.total_seconds())
    for role in NEEDED_ROLES:
        age = ages.get(role)
        about = f"role {role}"
        if age is None:
            yield Finding(about, Level.WARN, "never seen", f"start it: manage.py work {role}")
        elif age > patience:
            text = f"last seen {age:.0f} s ago"
            yield Finding(about, Level.WARN, text, f"start it again: manage.py work {role}")
        else:
            yield Finding(about, Level.OK, f"seen {age:.0f} s ago")


def roles_of(name: str, queues: Any) -> set[str]:
    """The roles that a process has: the one in its name (`agents-417`), and those whose queues it serves."""
    served = queues or []
    played = {name.partition("-")[0]}
    if "all" in played:
        played.add("beat")
    if "submissions" in served or "scheduler" in served:
        played.add("scheduler")
    if "supervisor" in served:
        played.add("supervisor")
    if any(queue.startswith("agent.") for queue in served):
        played.add("agents")
    return played


# The rows in which a supervisor notes its sweeps and canaries stand for no process.
_ALIVE = """
SELECT role, detail->'queues', count(*) FILTER (WHERE seen_at > now() - %(silent)s::float8 * interval '1 s')
  FROM supervision_heartbeat WHERE role <> ALL (ARRAY['supervisor-sweep', 'supervisor-canaries']) GROUP BY 1, 2 ORDER BY 1
"""


def alive() -> dict[str, int]:
    """How many processes were seen lately, by name and by each role that they have; 0 for a needed role that none has."""
    found = dict.fromkeys(NEEDED_ROLES, 0)
    for role, queues, count in db.fetch(_ALIVE, {"silent": SILENT_AFTER}):
        for name in {role, *roles_of(role, queues)}:
            found[name] = found.get(name, 0) + count
    return found


def schedules() -> Iterator[Finding]:
    """The periodic tasks that this code does not know: a worker drops what beat sends for them. And those sent seldom or never."""
    current_app.loader.import_default_modules()
    stopped = Q(one_off=False) | Q(task=SWEEP)  # a task that was sent once, as it was meant to be, is switched off
    off = PeriodicTask.objects.filter(stopped, enabled=False).order_by("name").values_list("name", "task")
    off = [row for row in off if row[1] in current_app.tasks]
    for name, task in off:
        yield Finding("schedules", Level.WARN, f"{name}: it is switched off, so beat never sends {task}", "switch it on in the console")
    rare = [task for task in PeriodicTask.objects.filter(enabled=True, task=SWEEP).select_related("interval") if _is_rare(task)]
    for one in rare:
        often = "once" if one.one_off else one.scheduler
        text = f"{one.name}: beat sends {one.task} {often} only, and expired steps wait as long"
        if one.start_time is not None and one.start_time > now():
            text = f"{one.name}: beat does not send {one.task} before {utc(one.start_time)}"
        yield Finding("schedules", Level.WARN, text, "in the console: an interval of some seconds, no start, not one-off")
    unknown = [row for row in PeriodicTask.objects.filter(enabled=True).values_list("name", "task") if row[1] not in current_app.tasks]
    for name, task in unknown:
        yield Finding(
            "schedules", Level.WARN, f"{name}: this code has no task {task}", "switch it off, or run the release that has the task"
        )
    if not unknown and not off and not rare:
        yield Finding("schedules", Level.OK, "this code knows every periodic task")


def _is_rare(sweep: PeriodicTask) -> bool:
    """Whether beat sends this sweep less often than the alert SasNoSweep allows, or not yet."""
    interval = sweep.interval
    waits = sweep.start_time is not None and sweep.start_time > now()
    return waits or sweep.one_off or interval is None or seconds_of(interval.every, interval.period) > SELDOM


def incidents() -> Iterator[Finding]:
    """The open incidents, except those of severity info."""
    standing = Incident.objects.filter(closed_at__isnull=True).exclude(severity=Incident.Severity.INFO)
    shown = list(standing.order_by("opened_at").values_list("severity", "title")[:20])
    for severity, title in shown:
        yield Finding("incidents", Level.WARN, f"{severity}: {title}", "manage.py incidents")
    if not shown:
        yield Finding("incidents", Level.OK, "no warning or critical one is open")


def alerts() -> Iterator[Finding]:
    """The open alerts that no operator has acknowledged, except those of severity info."""
    waiting = Alert.objects.filter(acknowledged_at__isnull=True, closed_at__isnull=True).exclude(severity=Incident.Severity.INFO).count()
    if waiting:
        yield Finding("alerts", Level.WARN, f"{waiting} not acknowledged", "the operator console, or manage.py orders --state Error")
    else:
        yield Finding("alerts", Level.OK, "none to acknowledge")


def secrets() -> Iterator[Finding]:
    """Whether the stored secrets are encrypted, and which of them no key opens. It reads what this process's database role may read."""
    again = "manage.py rotate_secrets, once every process runs this version and has the new key"
    found = False
    for place, store in sealed_rows.stores():
        if not sealed_rows.allowed(place, "SELECT"):
            continue
        count = sealed_rows.look(store)
        if count.unreadable:
            first, reason = next(iter(count.unreadable.items()))
            text = f"{place}: {len(count.unreadable)} unreadable, such as id {first}: {reason}"
            yield Finding("secrets", Level.FAIL, text, "add the key to FIELD_ENCRYPTION_KEYS, or give the row another secret")
        elif count.plain or count.older:
            yield Finding("secrets", Level.WARN, f"{place}: {count.plain} in plain text, {count.older} under an older key", again)
        else:
            continue
        found = True
    if not found:
        yield Finding("secrets", Level.OK, "all that this role may read are encrypted under the first key")


register("settings", settings_are_sane)
register("database", database)
register("sessions", sessions, needs_database=True)
register("failover", failover, needs_database=True)
register("locks", locks, needs_database=True)
register("migrations", migrations, needs_database=True)
register("clock", clock, needs_database=True)
register("broker", broker)
register("roles", roles, needs_database=True)
register("schedules", schedules, needs_database=True)
register("secrets", secrets, needs_database=True)
register("incidents", incidents, needs_database=True)
register("alerts", alerts, needs_database=True)
