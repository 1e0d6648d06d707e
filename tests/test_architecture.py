"""The architecture's rules, checked with the standard library: allowed imports, modules that may write, length of files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("supervision", "orders", "sasproject")
OTHERS_CODE = {".venv", ".venv-bench", "var", "staticfiles", "migrations", "node_modules", "vendor", ".git"}
MOST_LINES = 400

# A module may import from the lines above its own, and from no module in its own line or below.
LEVELS = (
    "known_versions",
    "errors states conf identity db sql recovery_sql front calls audit fairness destinations words loops journal_rows journal_files"
    " storable effects incident_sql liveness_sql lost_sql breaker",
    "bell live readings transports transports.envelope ledger incidents",
    "labels",
    "models.states models.resources models.outbound models.journal models.inbound transports.redis transports.pgmq transports.rabbitmq",
    "models.audience models.ledger models.incidents models.plans models.reconciliation tidy",
    "models.archive",
    "retry agent models hints failpoints heartbeats leadership sessions slots actors webhooks replies deliveries",
    "liveness",
    "workflow resources partitions canary queries deadletters load waiting_facts notifications audit_checks journal_store"
    " journal_due journal_check alerts starvation causes held_by findings adoption reconciliation",
    "hooks epochs",
    "held_time governance outages outbound archive sending incident_mail changes poison pauses plans journal journal_sheets resource_cache",
    "handles unknown_versions courier intake_queue custody limits waiting journal_writer",
    "versions store submission suspicion intake_consumer requeue metrics",
    "admission probes",
    "attribution",
    "recovery consuming operations",
    "notes openings",
    "workshop handback",
    "scheduler",
    "execution supervisor",
    "idle plan_guard",
    "worker testing",
    # Entry points for people, Celery and Django.
    "doctor checks plan_checks management management.progress templatetags beat_admin console_lists console",
    "apps tasks management.base console_forms console_sidebar",
    "management.commands console_filters console_pauses console_verbs templatetags.console "
    "archive_admin cache_admin incident_admin journal_admin resource_admin route_admin outbound_admin",
    "console_runs console_dashboard",
    "admin",
)
LEVEL = {f"supervision.{name}": level for level, names in enumerate(LEVELS) for name in names.split()}
DOORS = next(level for level, names in enumerate(LEVELS) if "checks" in names.split())
FACADE = "supervision"  # the names that an application needs to define its workflows; it imports no ORM
FACADE_IMPORTS = {"supervision.agent", "supervision.effects", "supervision.errors", "supervision.retry", "supervision.workflow"}

# The engine's modules that the shop may import: definitions, verbs, reads, the outbox, and the console's base pages.
FOR_THE_SHOP = {FACADE} | {
    f"supervision.{name}"
    for names in (
        ["agent", "db", "errors", "states", "workflow", "models"],
        ["actors", "pauses", "waiting", "limits", "load", "metrics"],
        ["operations", "queries", "submission", "scheduler", "notifications", "intake_queue", "live", "testing", "audit", "doctor"],
        ["console", "console_runs", "console_sidebar", "management.base", "management.progress"],
        ["journal", "resource_cache"],
        ["outbound", "destinations"],
        ["reconciliation", "adoption"],
        ["incidents", "incident_mail"],
    )
    for name in names
}
WRITERS = {"epochs", "held_time", "store", "sql", "recovery_sql", "changes", "recovery", "sessions", "archive", "testing"}
MODELS = {"Run", "StepState", "StepEvent"}
WRITES = {"create", "bulk_create", "update", "bulk_update", "delete", "save", "get_or_create", "update_or_create", "aupdate", "acreate"}


def python_files(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sorted(path.relative_to(ROOT) for path in found if not OTHERS_CODE & set(path.relative_to(ROOT).parts))


def name_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def is_module(name: str) -> bool:
    place = ROOT / name.replace(".", "/")
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def imports_of(path: Path) -> Iterator[str]:
    """The modules of this project that a file imports, also inside functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [full if is_module(full := f"{node.module}.{alias.name}") else node.module for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in PRODUCT)


def level(name: str) -> int | None:
    """A module's level; a command has the level of its package."""
    return LEVEL.get("supervision.management.commands" if name.startswith("supervision.management.commands.") else name)


@pytest.mark.parametrize("path", python_files("supervision"), ids=name_of)
def test_engine_modules_import_only_from_lower_levels(path):
    module = name_of(path)
    if module == FACADE:
        assert set(imports_of(path)) <= FACADE_IMPORTS
        return
    here = level(module)
    assert here is not None, f"{module} has no level: add it to LEVELS"

    for imported in imports_of(path):
        assert imported.split(".")[0] == "supervision", f"{module} names the application: {imported}"
        there = level(imported)
        assert there is not None, f"{module} imports {imported}"
        assert there < here, f"{module} may not import {imported}"


def test_the_table_of_levels_names_only_modules_that_exist_and_each_once():
    names = [name for names in LEVELS for name in names.split()]

    assert [name for name in names if not is_module(f"supervision.{name}")] == []
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("path", python_files("orders"), ids=name_of)
def test_the_shop_imports_only_the_engines_public_modules(path):
    foreign = {name for name in imports_of(path) if name.split(".")[0] == "supervision"}

    assert foreign <= FOR_THE_SHOP, sorted(foreign - FOR_THE_SHOP)


@pytest.mark.parametrize("path", python_files("orders"), ids=name_of)
def test_only_agents_reconciliation_and_simulators_know_the_gateways(path):
    if path.parts[1] in ("agents", "gateways", "reconciliation", "simulators") or path.stem == "doctor_probes":
        return

    assert [name for name in imports_of(path) if name.startswith("orders.gateways")] == []


@pytest.mark.parametrize("path", python_files(*PRODUCT), ids=name_of)
def test_imports_stand_at_the_top(path):
    if path.stem == "apps":
        return
    functions = [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = [
        f"{path}:{node.lineno}" for function in functions for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)
    ]

    assert inside == []


SUPERVISOR = ("supervisor", "recovery", "changes", "retry", "sessions", "leadership")
PERFORMING = {"supervision.calls", "supervision.execution", "supervision.workshop"}
CALLS_OF_AGENTS = {"perform", "perform_many", "compensate", "compensate_many"}


@pytest.mark.parametrize("name", SUPERVISOR)
def test_the_supervisor_and_what_decides_for_it_call_no_agent(name):
    """They decide and write; only agents processes make calls."""
    path = Path("supervision") / f"{name}.py"
    calls = {node.func.attr for node in ast.walk(tree(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}
    knows = {"supervision.agent"} if name == "changes" else set()  # it asks whether a step can be undone

    assert calls & CALLS_OF_AGENTS == set()
    assert set(imports_of(path)) & (PERFORMING | {"supervision.agent"}) == knows


def test_definitions_and_decisions_are_free_of_the_orm():
    """The modules that define workflows and those that decide about failures need no Django."""
    for name in ("errors", "states", "effects", "retry", "agent", "workflow", "__init__"):
        path = Path("supervision") / f"{name}.py"
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                assert not any(each.split(".")[0] in ("django", "celery", "psycopg") for each in names), path


# ---------------------------------------------------------------------------------------- modules that may write


def writes_of(path: Path) -> Iterator[str]:
    """Calls like `Run.objects...update(...)` and `step.save()` on the engine's hot rows, and SQL that writes them."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES:
            target = node.func.value
            while isinstance(target, ast.Call | ast.Attribute):
                target = target.func if isinstance(target, ast.Call) else target.value
            if isinstance(target, ast.Name) and target.id in MODELS:
                yield f"{path}:{node.lineno} {target.id}.{node.func.attr}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = " ".join(node.value.split())
            for table in ("run", "stepstate", "stepevent"):
                for verb in ("INSERT INTO", "UPDATE", "DELETE FROM", "TRUNCATE"):
                    if f"{verb} supervision_{table}" in words:
                        yield f"{path}:{node.lineno} {verb} supervision_{table}"


@pytest.mark.parametrize("path", python_files(*PRODUCT), ids=name_of)
def test_only_the_store_writes_runs_steps_and_events(path):
    if path.parts[0] == "supervision" and path.stem in WRITERS:
        return

    assert list(writes_of(path)) == []


def test_the_check_for_writers_sees_writes():
    assert list(writes_of(Path("supervision/changes.py")))
    assert list(writes_of(Path("supervision/sql.py")))


def test_only_the_store_executes_the_guarded_statements():
    users = {path.stem for path in python_files(*PRODUCT) if "supervision.sql" in set(imports_of(path))}

    assert users <= {"store", "recovery", "scheduler", "consuming", "load"}  # the last three only read


# -------------------------------------------------------------------------------------------------------- style


def texts() -> list[Path]:
    found = [path.relative_to(ROOT) for kind in ("py", "css", "html") for path in ROOT.rglob(f"*.{kind}")]
    return sorted(path for path in found if not OTHERS_CODE & set(path.parts))


def test_no_file_is_longer_than_one_sitting():
    lengths = {str(path): len((ROOT / path).read_text().splitlines()) for path in texts()}

    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


ENGINE = [path for path in python_files("supervision") if (level(name_of(path)) or 0) < DOORS]


@pytest.mark.parametrize("path", ENGINE, ids=name_of)
def test_every_engine_module_and_public_name_says_what_it_promises(path):
    if not (ROOT / path).read_text().strip():
        return
    public = [
        node
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]

    assert ast.get_docstring(tree(path)), path
    assert [node.name for node in public if not ast.get_docstring(node)] == []


def test_nothing_on_the_order_path_relies_on_celerys_own_timing_or_retries():
    forbidden = {"countdown", "eta", "expires", "retry_backoff", "autoretry_for"}
    for path in python_files("supervision"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.keyword) and node.arg in forbidden:
                pytest.fail(f"{path}:{node.value.lineno} {node.arg}")
