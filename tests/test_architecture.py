"""The architecture's rules, checked with the standard library: allowed imports, modules that may write, length of files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("supervision", "orders", "sasproject")
OTHERS_CODE = {"build", ".venv", ".venv-tools", ".venv-bench", "var", "staticfiles", "migrations", "node_modules", "vendor", ".git"}
MOST_LINES = 400

FACADE = "supervision"  # the names that an application needs to define its workflows; it imports no ORM
FACADE_READS = {
    "supervision.execution.task_agent",
    "supervision.insight.results",
    "supervision.intake.submitting",
    "supervision.signals.sending",
}  # for the types alone; it is loaded with the first use of a name
FACADE_IMPORTS = {
    "supervision.agent",
    "supervision.children.steps",
    "supervision.effects",
    "supervision.errors",
    "supervision.plans.functions",
    "supervision.plans.parallel",
    "supervision.retry",
    "supervision.signals.waits",
    "supervision.workflow",
}

# The engine's modules that the shop may import: definitions, verbs, reads, the outbox, and the console's base pages.
FOR_THE_SHOP = {FACADE} | {
    f"supervision.{name}"
    for name in (  # noqa: SIM905
        "agent errors states workflow models testing postgres.db postgres.advice"
        " operations.acting operations.audit_log operations.pauses operations.resource_limits"
        " operations.operator_verbs operations.previews operations.doctor store.runs.locked_run api.operator_views"
        " insight.waiting insight.autoscaling insight.metrics insight.totals insight.directory insight.filters"
        " insight.queries insight.live_events"
        " audit.registry approvals.stakes approvals.gate approvals.rights signals.untaken"
        " intake.submission signals.sending intake.amqp dispatch.scheduler outbox.notifications outbox.subscriptions outbox.address_policy"
        " outbox.incident_mail incidents.kept_evidence incidents.lifecycle incidents.standing"
        " ledger.reconciliation ledger.adoption journal.entries governance.response_cache"
        " api.base api.errors api.permissions api.requests api.shapes api.urls api.reference.problems api.reference.schema"
        " console.bounded_lists console.bulk.preview console.lists.searching console.shared console.run_lists console.sidebar"
        " console.verb_forms"
        " management.acting management.base management.planned management.progress runtime.tidying"
        " privacy.erasing privacy.held privacy.words runtime.failpoints runtime.names"
        " sealing.rows sealing.texts telemetry.measures telemetry.spans"
    ).split()
}
WRITERS = {
    "epochs",
    "put_back",
    "held_time",
    "step_verbs",
    "step_sql",
    "failure_sql",
    "run_verbs",
    "locked_run",
    "beginning_again",
    "branch_sql",
    "moved_rows",
    "sleeping",
    "failures",
    "sessions",
    "archive",
    "testing",
}
MODELS = {"Run", "StepState", "StepEvent"}
WRITES = {"create", "bulk_create", "update", "bulk_update", "delete", "save", "get_or_create", "update_or_create", "aupdate", "acreate"}


def python_files(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sorted(path.relative_to(ROOT) for path in found if not OTHERS_CODE & set(path.relative_to(ROOT).parts))


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


def of_each(paths: Iterable[Path]) -> Callable[[Callable[[Path], Collection[str]]], Callable[[], None]]:
    """One test for all of these files: it fails with what the decorated function finds in any of them."""

    def decorate(find: Callable[[Path], Collection[str]]) -> Callable[[], None]:
        def test() -> None:
            assert {str(path): sorted(found) for path in paths if (found := find(path))} == {}

        test.__name__, test.__doc__ = find.__name__, find.__doc__
        return test

    return decorate


def test_the_engines_facade_is_free_of_the_orm():
    assert set(imports_of(Path("supervision/__init__.py"))) <= FACADE_IMPORTS | FACADE_READS


def test_the_facade_loads_no_django_until_a_result_is_asked_for():
    asked = "import sys, supervision; print([name for name in sys.modules if name.split('.')[0] in ('django', 'psycopg', 'celery')])"

    answer = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"


@of_each(python_files("supervision"))
def test_the_engine_imports_no_application(path):
    return [name for name in imports_of(path) if name.split(".")[0] != "supervision"]


def test_every_room_says_what_it_is_and_none_has_more_than_twelve_modules():
    rooms = [path for path in (ROOT / "supervision").iterdir() if (path / "__init__.py").is_file()]
    unsaid = [room.name for room in rooms if room.name not in ("migrations", "templatetags", "management") and not docstring(room)]
    crowded = {room.name: len(list(room.glob("*.py"))) - 1 for room in rooms if room.name != "migrations"}

    assert unsaid == []
    assert {name: count for name, count in crowded.items() if count > 12} == {}
    assert len(list((ROOT / "supervision").glob("*.py"))) <= 15


def docstring(room: Path) -> str | None:
    return ast.get_docstring(ast.parse((room / "__init__.py").read_text()))


@of_each(python_files("orders"))
def test_the_shop_imports_only_the_engines_public_modules(path):
    return {name for name in imports_of(path) if name.split(".")[0] == "supervision"} - FOR_THE_SHOP


@of_each(python_files("orders"))
def test_only_agents_reconciliation_and_simulators_know_the_gateways(path):
    if (
        path.parts[1] in ("agents", "gateways", "reconciliation", "simulators")
        or path.stem == "doctor_probes"
        or path.parts[1:3] in (("payments", "hooks.py"), ("payments", "events.py"), ("parcels", "hooks.py"), ("parcels", "events.py"))
    ):
        return []
    return [name for name in imports_of(path) if name.startswith("orders.gateways")]


@of_each(python_files(*PRODUCT))
def test_imports_stand_at_the_top(path):
    if path.stem in ("apps", "plugin"):  # imported before Django is set up
        return []
    functions = [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [f"line {node.lineno}" for function in functions for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)]


SUPERVISOR = (
    "recovery/supervisor",
    "recovery/failures",
    "recovery/decisions",
    "store/run_verbs",
    "store/runs/locked_run",
    "retry",
    "store/sessions",
    "recovery/leader_lease",
)
PERFORMING = {"supervision.execution.call_pool", "supervision.execution.runner", "supervision.execution.agents_process"}
CALLS_OF_AGENTS = {"perform", "perform_many", "compensate", "compensate_many"}


@pytest.mark.parametrize("name", SUPERVISOR)
def test_the_supervisor_and_what_decides_for_it_call_no_agent(name):
    """They decide and write; only agents processes make calls."""
    path = Path("supervision") / f"{name}.py"
    calls = {node.func.attr for node in ast.walk(tree(path)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}
    knows = {"supervision.agent"} if name == "store/runs/locked_run" else set()  # it asks whether a step can be undone

    assert calls & CALLS_OF_AGENTS == set()
    assert set(imports_of(path)) & (PERFORMING | {"supervision.agent"}) == knows


def test_definitions_and_decisions_are_free_of_the_orm():
    """The modules that define workflows and those that decide about failures need no Django."""
    for name in ("errors", "states", "effects", "retry", "agent", "workflow", "signals/waits", "children/steps", "__init__"):
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
                    if re.search(rf"{verb} supervision_{table}\b", words):
                        yield f"{path}:{node.lineno} {verb} supervision_{table}"


@of_each(python_files(*PRODUCT))
def test_only_the_store_writes_runs_steps_and_events(path):
    if path.parts[0] == "supervision" and path.stem in WRITERS:
        return []
    return list(writes_of(path))


def test_the_check_for_writers_sees_writes():
    assert list(writes_of(Path("supervision/store/runs/locked_run.py")))
    assert list(writes_of(Path("supervision/store/step_sql.py")))


def test_only_the_store_executes_the_guarded_statements():
    users = {path.stem for path in python_files(*PRODUCT) if "supervision.store.step_sql" in set(imports_of(path))}

    assert users <= {"step_verbs", "new_runs", "attempts", "branch_sql", "claiming", "failures", "autoscaling"}  # the last one only reads


@of_each(python_files("supervision"))
def test_the_engine_names_no_command_of_the_shop(path):
    """The engine is installed in other projects, too: what it tells people to do has to exist there."""
    commands = [place.stem for place in (ROOT / "orders/management/commands").glob("*.py") if place.stem != "__init__"]
    text = (ROOT / path).read_text()

    return [name for name in ("./run ", *(f"manage.py {name}" for name in commands)) if name in text]


# -------------------------------------------------------------------------------------------------------- style


def texts() -> list[Path]:
    found = [path.relative_to(ROOT) for kind in ("py", "css", "html") for path in ROOT.rglob(f"*.{kind}")]
    return sorted(path for path in found if not OTHERS_CODE & set(path.parts))


def test_no_file_is_longer_than_one_sitting():
    lengths = {str(path): len((ROOT / path).read_text().splitlines()) for path in texts()}

    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


DOORS = ("admin", "console", "management", "templatetags", "checks", "doctor")
ENGINE = [path for path in python_files("supervision") if not set(path.with_suffix("").parts) & set(DOORS)]


@of_each(ENGINE)
def test_every_engine_module_and_public_name_says_what_it_promises(path):
    if not (ROOT / path).read_text().strip():
        return []
    public = [
        node
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not any(ast.unparse(each) == "overload" for each in node.decorator_list)
    ]

    module = [] if ast.get_docstring(tree(path)) else ["the module"]
    return module + [node.name for node in public if not ast.get_docstring(node)]


def test_nothing_on_the_order_path_relies_on_celerys_own_timing_or_retries():
    forbidden = {"countdown", "eta", "expires", "retry_backoff", "autoretry_for"}
    for path in python_files("supervision"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.keyword) and node.arg in forbidden:
                pytest.fail(f"{path}:{node.value.lineno} {node.arg}")
