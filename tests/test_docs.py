"""The documents agree with the code: states, variables, settings, commands, files."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

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


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def in_code(text: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", text))


def test_the_drawing_of_the_states_is_the_code_s():
    assert (ROOT / "docs" / "state-machine.md").read_text() == draw(), "run manage.py state_machine --write"


def test_the_drawing_names_every_state():
    page = draw()

    for state in [*RunState, *ProcessState]:
        assert f"| {state} |" in page


def test_every_variable_is_explained():
    assert [name for name in {"SECRET_KEY", *PROMISED, *read_by_settings(), *named_in_procfile()} if f"`{name}`" not in OPERATIONS] == []


def test_every_setting_of_the_engine_is_explained_with_its_default():
    section = OPERATIONS.partition("## The engine's settings")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    told = {key: next((row.split("|")[2].strip() for row in rows if f"`{key}`" in row), None) for key in conf.DEFAULTS}

    assert told == {key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in conf.DEFAULTS.items()}


def test_every_kind_of_alert_has_its_advice():
    section = OPERATIONS.partition("## Other alerts")[2]

    assert [kind for kind in Alert.Kind.values if f"| `{kind}` |" not in section] == []


@cache
def options_of(command: str) -> frozenset[str] | None:
    """The options of a command; None if there is no such command."""
    app = get_commands().get(command)
    if app is None:
        return None
    loaded = load_command_class(app, command) if isinstance(app, str) else app
    return frozenset(loaded.create_parser("manage.py", command)._option_string_actions)


def test_every_command_and_option_in_a_document_exists():
    wrong = []
    for name in NAMES:
        for command, rest in re.findall(r"(?:manage\.py|run manage) ([a-z_]+)([^`\n|#;]*)", text_of(name)):
            options = options_of(command)
            if options is None:
                wrong.append(f"{name}: there is no command {command}")
            else:
                wrong += [f"{name}: {command} has no {option}" for option in re.findall(r"--[a-z-]+", rest) if option not in options]

    assert wrong == []


def test_every_command_of_run_in_a_document_exists():
    usage = (ROOT / "scripts" / "bootstrap.py").read_text()
    named = [(name, command) for name in NAMES for command in re.findall(r"\./run ([a-z]+)", text_of(name))]

    assert named
    assert [(name, command) for name, command in named if f"\n  {command} " not in usage] == []


def test_every_command_of_ours_is_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    ours = [name for name, app in get_commands().items() if app in ("orders", "supervision")]

    missing = [name for name in ours if not re.search(rf"`(?:manage\.py )?{name}\b", readme)]
    assert missing == []


NAMED = r"[\w./-]+\.(py|md|txt|toml)|[\w.-]+(/[\w.-]+)+\.ya?ml|[\w-]+(/[\w-]+)*/"  # files and directories


def test_every_file_named_in_a_document_exists():
    made_later = {"var/", "var/mutants/", "adr/"}
    # Modules that an application may have and need not have; and the example of a new agent.
    allowed = {"workflows.py", "audit_checks.py", "doctor_probes.py", "orders/gateways/wrapping.py", "orders/agents/wrapping.py"}
    missing = []
    for name in NAMES:
        paths = {code for code in in_code(text_of(name)) if re.fullmatch(NAMED, code)}
        bases = [ROOT, ROOT / "deploy", ROOT / "supervision", (ROOT / name).parent]
        missing += [(name, path) for path in paths - made_later - allowed if not any((base / path).exists() for base in bases)]

    assert missing == []


def test_every_link_to_another_document_leads_somewhere():
    targets = [(name, target) for name in NAMES for target in re.findall(r"\]\(([^)#]+)", text_of(name))]
    ours = [(name, target) for name, target in targets if not target.startswith(("http://", "https://"))]

    assert ours
    assert [(name, target) for name, target in ours if not ((ROOT / name).parent / target).exists()] == []


def test_a_document_keeps_to_its_line_length():
    lines = [(name, number, line) for name in NAMES for number, line in enumerate(text_of(name).splitlines(), start=1)]

    assert [f"{name}:{number}" for name, number, line in lines if len(line) > 130 and not line.lstrip().startswith("|")] == []
