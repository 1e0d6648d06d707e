"""The documents agree with the code: states, variables, settings, commands, files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import get_commands, load_command_class

from supervision import conf
from supervision.management.commands.state_machine import draw
from supervision.models import Alert
from supervision.states import ProcessState, RunState

ROOT = Path(settings.BASE_DIR)
DOCUMENTS = sorted([*ROOT.glob("*.md"), ROOT / "deploy" / "README.md", *(ROOT / "docs").rglob("*.md")])
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]

# Variables that the documents must explain even if the settings do not read them.
PROMISED = [
    "DATABASE_URL",
    "CELERY_BROKER_URL",
    "HOST",
    "PORT",
    "SECRET_KEY",
    "DEBUG",
    "ALLOWED_HOSTS",
    "CSRF_TRUSTED_ORIGINS",
    "SECURE_SSL_REDIRECT",
    "TRUST_PROXY",
    "API_THROTTLE",
    "WEBHOOK_ALLOW_PRIVATE",
    "STRIPE_API_BASE",
    "STRIPE_API_KEY",
    "CARRIER_URL",
    "CARRIER_API_KEY",
    "EMAIL_URL",
    "DEFAULT_FROM_EMAIL",
    "SUPERVISION_SWEEP_SECONDS",
    "SUPERVISION_COMPLETE_WITHIN",
    "SUPERVISION_FAILURE_THRESHOLD",
    "SUPERVISION_ON_EXHAUSTED",
    "SUPERVISION_ON_PERMANENT",
    "SUPERVISION_LONG_WAIT",
    "FAILPOINTS",
]


def read_by_settings() -> set[str]:
    """The variables that the settings read, found in the settings' source."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / "sasproject" / "settings.py").read_text())):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func)
            if called.startswith("env_") or called == "os.environ.get":
                found.add(str(node.args[0].value))
    return {name for name in found if re.fullmatch("[A-Z_]+", name)}


def named_in_procfile() -> set[str]:
    return set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "Procfile").read_text()))


def in_code(text: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", text))


def test_the_drawing_of_the_states_is_the_code_s():
    assert (ROOT / "docs" / "state-machine.md").read_text() == draw(), "run manage.py state_machine --write"


def test_the_drawing_names_every_state():
    page = draw()

    for state in [*RunState, *ProcessState]:
        assert f"| {state} |" in page


@pytest.mark.parametrize("name", sorted({"SECRET_KEY", *PROMISED, *read_by_settings(), *named_in_procfile()}))
def test_every_variable_is_explained(name: str):
    assert f"`{name}`" in OPERATIONS


@pytest.mark.parametrize("key", conf.DEFAULTS)
def test_every_setting_of_the_engine_is_explained_with_its_default(key: str):
    section = OPERATIONS.partition("## The engine's settings")[2].partition("\n## ")[0]
    row = next((line for line in section.splitlines() if line.startswith("|") and f"`{key}`" in line), None)

    assert row, f"{key} is not in the table"
    default = conf.DEFAULTS[key]
    assert row.split("|")[2].strip() == (f"{default:g}" if isinstance(default, float) else str(default))


@pytest.mark.parametrize("kind", Alert.Kind.values)
def test_every_kind_of_alert_has_its_advice(kind: str):
    assert f"| `{kind}` |" in OPERATIONS.partition("## Other alerts")[2]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_and_option_in_a_document_exists(name: str):
    known = get_commands()
    for command, rest in re.findall(r"(?:manage\.py|run manage) ([a-z_]+)([^`\n|#;]*)", (ROOT / name).read_text()):
        assert command in known, f"{name}: there is no command {command}"
        app = known[command]
        loaded = load_command_class(app, command) if isinstance(app, str) else app
        options = loaded.create_parser("manage.py", command)._option_string_actions
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in options, f"{name}: {command} has no {option}"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_of_run_in_a_document_exists(name: str):
    usage = (ROOT / "scripts" / "bootstrap.py").read_text()
    for command in re.findall(r"\./run ([a-z]+)", (ROOT / name).read_text()):
        assert f"\n  {command} " in usage, f"{name}: ./run has no {command}"


def test_every_command_of_ours_is_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    ours = [name for name, app in get_commands().items() if app in ("orders", "supervision")]

    missing = [name for name in ours if not re.search(rf"`(?:manage\.py )?{name}\b", readme)]
    assert missing == []


NAMED = r"[\w./-]+\.(py|md|txt|toml)|[\w.-]+(/[\w.-]+)+\.ya?ml|[\w-]+(/[\w-]+)*/"  # files and directories


@pytest.mark.parametrize("name", NAMES)
def test_every_file_named_in_a_document_exists(name: str):
    text = (ROOT / name).read_text()
    paths = {code for code in in_code(text) if re.fullmatch(NAMED, code)}
    bases = [ROOT, ROOT / "deploy", ROOT / "supervision", (ROOT / name).parent]
    made_later = {"var/", "var/mutants/", "adr/"}

    missing = [path for path in paths - made_later if not any((base / path).exists() for base in bases)]
    # Modules that an application may have and need not have; and the example of a new agent.
    allowed = ("workflows.py", "audit_checks.py", "doctor_probes.py", "orders/gateways/wrapping.py", "orders/agents/wrapping.py")
    assert [path for path in missing if path not in allowed] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_link_to_another_document_leads_somewhere(name: str):
    here = (ROOT / name).parent
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / name).read_text()):
        if not target.startswith(("http://", "https://")):
            assert (here / target).exists(), f"{name}: {target}"


@pytest.mark.parametrize("name", NAMES)
def test_a_document_keeps_to_its_line_length(name: str):
    for number, line in enumerate((ROOT / name).read_text().splitlines(), start=1):
        if not line.lstrip().startswith("|"):
            assert len(line) <= 130, f"{name}:{number}"
