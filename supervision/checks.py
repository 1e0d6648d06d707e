"""System checks: they find contradictions in the settings at start. Each has an id and a hint.

One of them uses the database: `migrate` runs it.

E: the system would lose or break something. W: it would work, but not as an operator expects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.utils.text import capfirst

from supervision import celery, conf
from supervision.postgres import advice, params
from supervision.retry import OnExhausted, OnPermanent
from supervision.runtime import failpoints
from supervision.workflow import workflows

TAG = "supervision"
MAY_BE_NOTHING = ("COMPLETE_WITHIN", "ON_EXHAUSTED", "ON_PERMANENT", "ARCHIVE_DAYS", "RECORD_DAYS")
WHOLE_NUMBERS = (
    "FAILURE_THRESHOLD",
    "COHORT",
    "IN_FLIGHT",
    "AGENT_THREADS",
    "SWEEP_BATCH",
    "JOURNAL_FLUSH_ENTRIES",
    "JOURNAL_FILE_BYTES",
    "ARCHIVE_DAYS",
    "KEY_DAYS",
    "JOB_KEEP_DAYS",
    "RECORD_DAYS",
)
MAY_BE_ZERO = ("LINGER_SECONDS", "HOLD_OFF_SECONDS", "HINT_SECONDS")
SECONDS = ("SWEEP_SECONDS", "COMPLETE_WITHIN", "LONG_WAIT", "PICKUP_SECONDS", "RELAY_SECONDS", "LEASE_SECONDS", "CANARY_SECONDS")
JOURNAL_SECONDS = ("JOURNAL_FLUSH_SECONDS", "JOURNAL_LEASE_SECONDS")


@register(TAG)
def check_supervision(app_configs: object, **_: Any) -> list[CheckMessage]:
    """The SUPERVISION dictionary: known keys, sensible values, and no value that contradicts another."""
    given = getattr(settings, "SUPERVISION", {})
    if not isinstance(given, Mapping):
        return [Error("SUPERVISION is not a dictionary.", hint="SUPERVISION = {...}", id="supervision.E001")]
    found = [*_unknown_keys(given), *_bad_values(given)]
    if not any(isinstance(message, Error) for message in found):
        found += _contradictions(conf.get())
    return found


@register(Tags.database)
def check_replaced_migrations(app_configs: object, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """A database may have all migrations that one initial migration replaces, or none. Django would skip the app in silence."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        loader = MigrationLoader(connections[alias], load=False)
        loader.load_disk()
        applied = MigrationRecorder(connections[alias]).applied_migrations()
        for (app, name), migration in loader.disk_migrations.items():
            lacking = [one for one in migration.replaces if one not in applied]
            if 0 < len(lacking) < len(migration.replaces) and any(one not in loader.disk_migrations for one in lacking):
                text = f"The database lacks {len(lacking)} of the migrations that {app}.{name} replaces, the first: {lacking[0][1]}."
                hint = "First run `migrate` with the code before that migration: `git log --diff-filter=A -- '*/{}.py'` names its commit."
                found.append(Error(text, hint=hint.format(name), id="supervision.E018"))
    return found


@register(TAG)
def check_failpoints(app_configs: object, **_: Any) -> list[CheckMessage]:
    """Failpoints kill processes on purpose: a setting must allow them explicitly, and each name must exist."""
    wanted = getattr(settings, "FAILPOINTS", "")
    if not wanted:
        return []
    if not getattr(settings, "ALLOW_FAILPOINTS", False):
        return [
            Error(
                "FAILPOINTS is set but not allowed: it breaks processes on purpose.",
                hint="Unset FAILPOINTS; for a test of recovery set ALLOW_FAILPOINTS=1 as well.",
                id="supervision.E006",
            )
        ]
    found: list[CheckMessage] = []
    for item in filter(None, (part.strip() for part in wanted.split(","))):
        name = item.partition("=")[0]
        if name not in failpoints.NAMES:
            hint = did_you_mean(name, failpoints.NAMES)
            found.append(Error(f"FAILPOINTS: {name!r} is no failpoint.", hint=hint, id="supervision.E007"))
    if not found:
        found.append(
            Warning(
                f"FAILPOINTS is active: {wanted}.",
                hint="Only for tests of recovery: unset FAILPOINTS and ALLOW_FAILPOINTS elsewhere.",
                id="supervision.W008",
            )
        )
    return found


@register(TAG)
def check_children(app_configs: object, **_: Any) -> list[CheckMessage]:
    """A step that starts other runs names a workflow that is registered, too."""
    known = {workflow.name for workflow in workflows()}
    return [
        Error(
            f"Workflow {workflow.name!r}, step {step.name!r} starts runs of {step.starts!r}, which is not registered.",
            hint=did_you_mean(step.starts, tuple(known)),
            id="supervision.E021",
        )
        for workflow in workflows()
        for step in workflow.steps
        if step.starts and step.starts not in known
    ]


@register(TAG)
def check_times(app_configs: object, **_: Any) -> list[CheckMessage]:
    """Django's times have a time zone, as those of the database have."""
    if settings.USE_TZ:
        return []
    what = "USE_TZ is off: the console cannot show the engine's times, which have a time zone."
    return [Error(what, hint="USE_TZ = True, which is Django's default.", id="supervision.E023")]


@register(TAG)
def check_routers(app_configs: object, **_: Any) -> list[CheckMessage]:
    """The engine's own statements go to the default database. A router must not lead Django's to another one."""
    run = apps.get_model("supervision", "Run")
    led = {"reads": router.db_for_read(run), "writes": router.db_for_write(run)}
    hint = "Let each router answer None or 'default' for the app supervision, and allow its migrations there."
    found = [
        Error(f"DATABASE_ROUTERS leads {what} of the engine's tables to {alias!r}, not to 'default'.", hint=hint, id="supervision.E022")
        for what, alias in led.items()
        if alias != DEFAULT_DB_ALIAS
    ]
    if not router.allow_migrate_model(DEFAULT_DB_ALIAS, run):
        found.append(Error("DATABASE_ROUTERS makes none of the engine's tables in 'default'.", hint=hint, id="supervision.E022"))
    return list(found)


@register(TAG)
def check_direct(app_configs: object, **_: Any) -> list[CheckMessage]:
    """The way around a pooler leads tests to the test database, too."""
    direct = settings.DATABASES.get(params.DIRECT)
    if direct is None or (direct.get("TEST") or {}).get("MIRROR") == DEFAULT_DB_ALIAS:
        return []
    what = f"DATABASES[{params.DIRECT!r}] does not follow 'default' to the test database: Django makes it one of its own, or none."
    hint = f"DATABASES[{params.DIRECT!r}]['TEST'] = {{'MIRROR': {DEFAULT_DB_ALIAS!r}}}."
    return [Warning(what, hint=hint, id="supervision.W027")]


@register(TAG)
def check_celery(app_configs: object, **_: Any) -> list[CheckMessage]:
    """Celery's options: hints need no result, no retry of their own and no pickle."""
    found: list[CheckMessage] = []

    def complain(kind: type[Error] | type[Warning], number: int, what: str, hint: str) -> None:
        letter = "E" if kind is Error else "W"
        found.append(kind(what, hint=hint, id=f"supervision.{letter}{number:03}"))

    def value(name: str, default: Any = None) -> Any:
        return getattr(settings, f"CELERY_{name}", celery.DEFAULTS.get(name.lower(), default))

    if value("TASK_ALWAYS_EAGER", False):
        complain(
            Error,
            10,
            "CELERY_TASK_ALWAYS_EAGER runs agents inside the caller, where a lost caller loses the step.",
            "Remove it; run `manage.py schedule --once` and a worker, or the test kit, instead.",
        )
    formats = {value("TASK_SERIALIZER"), *value("ACCEPT_CONTENT")}
    if formats & {"pickle", "application/x-python-serialize"}:
        complain(
            Error,
            11,
            "Celery accepts pickle: any client of the broker could run code in the workers.",
            'CELERY_TASK_SERIALIZER = "json" and CELERY_ACCEPT_CONTENT = ["json"].',
        )
    if value("RESULT_BACKEND"):
        complain(
            Warning,
            12,
            "A Celery result backend is set, and nothing reads it: outcomes are rows of the state store.",
            "Remove CELERY_RESULT_BACKEND.",
        )
    if value("TASK_ACKS_LATE"):
        complain(
            Warning,
            13,
            "CELERY_TASK_ACKS_LATE makes the broker deliver again what the lease brings back anyway.",
            "CELERY_TASK_ACKS_LATE = False: duplicates are harmless but cost a worker's time.",
        )
    if value("TASK_PUBLISH_RETRY"):
        complain(
            Warning,
            14,
            "CELERY_TASK_PUBLISH_RETRY lets a web request wait for a broker that is away.",
            "CELERY_TASK_PUBLISH_RETRY = False: a lost hint only costs latency.",
        )
    if value("TASK_TIME_LIMIT") or value("TASK_SOFT_TIME_LIMIT"):
        complain(
            Warning,
            15,
            "A Celery time limit ends whole cohorts in the middle of a call.",
            "Remove CELERY_TASK_TIME_LIMIT and _SOFT_TIME_LIMIT: each step has its own complete_within.",
        )
    engine = settings.DATABASES.get("default", {}).get("ENGINE", "")
    if engine not in ("django.db.backends.postgresql", "supervision.postgres.backend"):
        complain(
            Error,
            16,
            f"The default database's engine is {engine or 'not set'}; only PostgreSQL holds the state.",
            capfirst(advice.current()) + ": its ENGINE is django.db.backends.postgresql.",
        )
    return found


def did_you_mean(word: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    """The nearest known word, or all of them."""
    close = get_close_matches(word, known, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(sorted(known))}."


def _unknown_keys(given: Mapping[str, Any]) -> Iterator[CheckMessage]:
    for key in given:
        if key in conf.RENAMED:
            new = conf.RENAMED[key]
            yield Warning(f"SUPERVISION[{key!r}] is now {new!r}.", hint=f"Call it {new!r}.", id="supervision.W026")
        elif key not in conf.DEFAULTS:
            hint = did_you_mean(str(key), conf.DEFAULTS)
            yield Error(f"SUPERVISION has no setting {key!r}.", hint=hint, id="supervision.E001")


def _bad_values(given: Mapping[str, Any]) -> Iterator[CheckMessage]:
    for key, value in given.items():
        if key not in conf.DEFAULTS or (value is None and key in MAY_BE_NOTHING):
            continue
        if key in (*WHOLE_NUMBERS, *MAY_BE_ZERO, *SECONDS, *JOURNAL_SECONDS):
            yield from _bad_number(key, value)
    for key, enum, number in (("ON_EXHAUSTED", OnExhausted, 3), ("ON_PERMANENT", OnPermanent, 4)):
        value = given.get(key)
        if value and value not in list(enum):
            allowed = ", ".join(enum)
            yield Error(
                f"SUPERVISION[{key!r}] is {value!r}, which is no policy.",
                hint=f"One of {allowed}; None leaves it to each step.",
                id=f"supervision.E{number:03}",
            )
    emails = given.get("OPERATOR_EMAILS", ())
    if isinstance(emails, str) or not all(isinstance(email, str) for email in emails):
        yield Error(
            "SUPERVISION['OPERATOR_EMAILS'] must be a list of addresses.",
            hint='["ops@example.com"], with the brackets even for one.',
            id="supervision.E005",
        )


def _bad_number(key: str, value: Any) -> Iterator[CheckMessage]:
    figure = value.total_seconds() if isinstance(value, timedelta) else value
    whole = key in WHOLE_NUMBERS
    minimum = "0 or more" if key in MAY_BE_ZERO else "above 0"
    right_kind = isinstance(figure, int if whole else int | float) and not isinstance(figure, bool)
    if not right_kind or figure < 0 or (figure == 0 and key not in MAY_BE_ZERO):
        kind = "a whole number" if whole else "a number of seconds"
        yield Error(
            f"SUPERVISION[{key!r}] is {value!r}.",
            hint=f"It must be {kind}, {minimum}.",
            id="supervision.E002",
        )


def _contradictions(now: conf.Conf) -> Iterator[CheckMessage]:
    def odd(number: int, what: str, hint: str) -> CheckMessage:
        return Warning(what, hint=hint, id=f"supervision.W{number:03}")

    budgets = {
        f"{workflow.name}, {step.name}": now.complete_within or step.complete_within for workflow in workflows() for step in workflow.steps
    }
    if budgets:
        shortest = min(budgets, key=lambda step: budgets[step])
        if now.sweep_every > budgets[shortest]:
            yield odd(
                20,
                f"The supervisor looks every {_s(now.sweep_every)}, but {shortest!r} may take only "
                f"{_s(budgets[shortest])}: recovery will take longer than the work.",
                "Lower SWEEP_SECONDS (SUPERVISION_SWEEP_SECONDS) or raise the step's complete_within.",
            )
    for workflow in workflows():
        if now.complete_within and now.complete_within > workflow.complete_within:
            yield odd(
                21,
                f"COMPLETE_WITHIN gives each step {_s(now.complete_within)}, but the whole workflow "
                f"{workflow.name!r} may take only {_s(workflow.complete_within)}.",
                "Lower COMPLETE_WITHIN (SUPERVISION_COMPLETE_WITHIN).",
            )
        for step in workflow.steps:
            wait = step.retry.long_wait or now.long_wait
            if (now.on_exhausted or step.retry.on_exhausted) == OnExhausted.WAIT and wait < step.retry.max_delay:
                yield odd(
                    22,
                    f"The longer wait of {step.name!r} ({_s(wait)}) is shorter than its ordinary back-off ({_s(step.retry.max_delay)}).",
                    "Raise LONG_WAIT (SUPERVISION_LONG_WAIT) or lower the step's max_delay.",
                )
    if now.lease <= now.sweep_every:
        yield odd(
            23,
            f"A supervisor leads for {_s(now.lease)} and looks every {_s(now.sweep_every)}: its lease is over "
            "before it can renew it, so the leader keeps changing.",
            "Raise LEASE_SECONDS to at least twice SWEEP_SECONDS.",
        )
    if now.pickup_within <= now.sweep_every:
        yield odd(
            24,
            f"PICKUP_SECONDS ({_s(now.pickup_within)}) is not above SWEEP_SECONDS ({_s(now.sweep_every)}): every "
            "released step would raise a starvation alert.",
            "Raise PICKUP_SECONDS.",
        )
    if now.cohort > now.in_flight:
        yield odd(
            25,
            f"COHORT ({now.cohort}) is above IN_FLIGHT ({now.in_flight}): no message can ever be full.",
            "Lower COHORT or raise IN_FLIGHT.",
        )


def _s(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"
