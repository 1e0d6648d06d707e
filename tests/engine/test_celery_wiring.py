"""`supervision.celery.configure` and the system check that misses it, in small projects of their own, each in its own process."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from celery import current_app
from django.conf import settings

from supervision import celery, transports
from supervision.transports import options

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = """
SECRET_KEY = "for-tests-only"
INSTALLED_APPS = [f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes")] + ["django_celery_beat", "supervision"]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "hires", "HOST": "/nowhere"}}
DATABASES["default"]["OPTIONS"] = {"server_side_binding": True}  # Django's own, unknown to libpq
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""
PLAIN = """
import os
from celery import Celery
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hiring.settings")
app = Celery("hiring")
app.config_from_object("django.conf:settings", namespace="CELERY")
"""
WIRED = PLAIN + "from supervision.celery import configure\nconfigure(app)\n"
# Modules that a worker needs, and a command does not.
HEAVY = (
    "celery.worker.consumer",
    "celery.bin.worker",
    "kombu.transport.pgmq",
    "supervision.deadletters.consumer",
    "supervision.tasks",
    "unfold",
)


class Project:
    """A Django project in a directory of its own."""

    def __init__(self, directory: Path, application: str, settings: str = "") -> None:
        self.directory = directory
        package = directory / "hiring"
        package.mkdir()
        (package / "__init__.py").write_text("from hiring.celery import app\n" if application else "")
        (package / "celery.py").write_text(application)
        (package / "settings.py").write_text(SETTINGS + settings)

    def run(self, code: str) -> subprocess.CompletedProcess[str]:
        """Run this code in the project, after Django's setup."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("CELERY", "DJANGO", "PYTEST"))}
        env |= {"DJANGO_SETTINGS_MODULE": "hiring.settings", "PYTHONPATH": f"{self.directory}{os.pathsep}{ROOT}"}
        whole = f"import django; django.setup()\nfrom celery import current_app\n{code}"
        return subprocess.run(
            [sys.executable, "-c", whole], env=env, cwd=self.directory, capture_output=True, text=True, check=False, timeout=90
        )

    def answer(self, code: str) -> str:
        """What this code prints. It must succeed."""
        done = self.run(code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def check(self, before: str = "") -> str:
        """What `manage.py check` complains of; empty if nothing."""
        return self.run(f"{before}\nfrom django.core.management import call_command\ncall_command('check', tags=['supervision'])").stderr


def test_a_project_that_forgot_the_wiring_does_not_pass_its_checks(tmp_path):
    found = Project(tmp_path, PLAIN).check()

    assert "supervision.E017" in found
    assert "supervision.celery.configure(app)" in found


def test_a_project_whose_processes_import_no_application_does_not_pass_either(tmp_path):
    assert "supervision.E017" in Project(tmp_path, "").check()


@pytest.mark.parametrize(
    ("before", "complaint"),
    [
        ("from celery import Celery; Celery('another')", "The current Celery application, 'another',"),
        ("current_app.conf.broker_url; current_app.conf.worker_consumer = 'mine:Consumer'", "Celery's worker_consumer is"),
        (
            "from kombu.transport import TRANSPORT_ALIASES; TRANSPORT_ALIASES['redis'] = 'kombu.transport.redis:Transport'",
            "Another package has replaced",
        ),
    ],
    ids=["a second application", "another consumer", "another transport"],
)
def test_what_replaces_our_wiring_is_found(tmp_path, before, complaint):
    assert f"(supervision.E017) {complaint}" in Project(tmp_path, WIRED).check(before=before)


def test_a_project_with_the_wiring_passes_and_the_check_loads_no_worker(tmp_path):
    project = Project(tmp_path, WIRED)
    loaded = f"import sys; print([name for name in {HEAVY!r} if name in sys.modules])"

    assert project.check() == ""
    assert project.answer(f"from django.core.checks import run_checks\nassert run_checks(tags=['supervision']) == []\n{loaded}") == "[]"


def test_our_own_application_passes():
    assert celery.check_application(None) == []
    assert transports.installed()
    assert current_app.conf.worker_consumer == celery.CONSUMER


def test_the_project_s_settings_win_and_the_engine_s_promises_stay(tmp_path):
    given = """
CELERY_WORKER_CONSUMER = "celery.worker.consumer:Consumer"
CELERY_WORKER_PREFETCH_MULTIPLIER = 7
CELERY_TASK_ROUTES = {"supervision.sweep": {"queue": "elsewhere"}, "reports.*": {"queue": "reports"}}
"""
    answer = Project(tmp_path, WIRED, given).answer(
        "conf, names = current_app.conf, ('supervision.sweep', 'supervision.schedule', 'reports.x')\n"
        "queues = [current_app.amqp.router.route({}, name)['queue'].name for name in names]\n"
        "print(conf.worker_prefetch_multiplier, conf.task_publish_retry, conf.worker_consumer, queues)"
    )

    assert answer == f"7 False {celery.CONSUMER} ['supervisor', 'scheduler', 'reports']"


@pytest.mark.parametrize(("url", "name"), [("pgmq://", "conn_string"), ("amqp://h//", "write_timeout"), ("redis://h/0", "socket_timeout")])
def test_a_broker_gets_its_options_from_its_url(url, name):
    assert name in options.of_broker(url, settings.DATABASES["default"])


def test_pgmq_goes_to_the_server_itself_where_the_database_is_behind_a_pooler(tmp_path):
    given = """
DATABASES["direct"] = {**DATABASES["default"], "HOST": "the-server-itself"}
CELERY_BROKER_URL = "pgmq://"
"""
    answer = Project(tmp_path, WIRED, given).answer("print(current_app.conf.broker_transport_options['conn_string'])")

    assert "the-server-itself" in answer
    assert "/nowhere" not in answer


def test_pgmq_finds_the_project_s_database_as_libpq_does(tmp_path, monkeypatch):
    monkeypatch.setenv("PGUSER", "grace")
    monkeypatch.setenv("PGHOST", "elsewhere")  # the settings name another host
    asked = "print(current_app.conf.broker_transport_options['conn_string'])"
    answer = Project(tmp_path, WIRED, "CELERY_BROKER_URL = 'pgmq://'\n").answer(asked)

    assert {"dbname=hires", "user=grace", "host=/nowhere", "port=5432"} <= set(answer.split())


def test_a_project_s_own_options_of_the_broker_stay(tmp_path):
    given = "CELERY_BROKER_URL = 'pgmq://'\nCELERY_BROKER_TRANSPORT_OPTIONS = {'own': 1}\n"

    assert Project(tmp_path, WIRED, given).answer("print(current_app.conf.broker_transport_options)") == "{'own': 1}"


def test_every_thread_publishes_through_the_configured_application(tmp_path):
    code = "import threading; thread = threading.Thread(target=lambda: print(current_app.main)); thread.start(); thread.join()"
    beside_another = WIRED.replace('app = Celery("hiring")', 'Celery("another")\napp = Celery("hiring")')

    assert Project(tmp_path, beside_another).answer(code) == "hiring"


def test_the_module_does_not_hide_the_package_of_the_same_name(tmp_path):
    code = (
        "import celery, supervision.celery, supervision.tasks\nprint(supervision.tasks.Task is celery.Task, supervision.celery is celery)"
    )

    assert Project(tmp_path, WIRED).answer(code) == "True False"
    for path in (ROOT / "supervision").glob("*.py"):  # beside the module, a relative import would find it
        relative = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom) and node.level]
        assert relative == [], path
