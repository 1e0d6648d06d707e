"""The engine as another project gets it: a wheel in an empty environment, `startproject`, and the files of docs/installing.md.

Real processes, a real database: a worker is killed in mid-step, a step fails for good, an operator resubmits it in the admin.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

from chaos.shop import scratch_database
from tests import services
from tests.support.shop import until

pytestmark = pytest.mark.timeout(1800)

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "installing.md").read_text()
FILES = dict(re.findall(r"^```python\n# ([\w/.]+)[^\n]*\n(.*?)^```$", PAGE, re.M | re.S))
WIRING = ("hiring/settings.py", "hiring/celery.py", "hiring/__init__.py")
PYTHON = os.environ.get("TEST_PYTHON", sys.executable)  # the interpreter of the empty environment
IN_THE_WHEEL = ("supervision", "pyproject.toml", "README.md", "LICENSE")
# Only for the test: a lost step is found soon, and no number of attempts is too many on a slow machine.
TUNING = 'SUPERVISION = {"COMPLETE_WITHIN": 8, "SWEEP_SECONDS": 1, "FAILURE_THRESHOLD": 100}\n'
# The services that the agents call. Files tell them what to do.
SERVICES = """
import os, time
from pathlib import Path
from supervision import PermanentFailure

HERE = Path(__file__).parent

def create_account(name, key):
    with (HERE / "calls").open("a") as calls:
        calls.write(f"{os.getpid()} {key}\\n")
    while (HERE / "hold").exists():
        time.sleep(0.05)
    return {"account": name}

def delete_account(key):
    return {}

def order_laptop(key):
    if (HERE / "refuse").exists():
        raise PermanentFailure("no laptop is left")
    return {"laptop": 7}
"""
# An operator in the admin: looks at the pages, then resubmits the failed step.
OPERATOR = """
import re, sys
import django
django.setup()
from django.contrib.auth import get_user_model
from django.contrib.staticfiles import finders
from django.test import Client
from supervision.models import Run

run = Run.objects.get(key=sys.argv[1])
olga, _ = get_user_model().objects.get_or_create(username="olga", is_staff=True, is_superuser=True)
client = Client(SERVER_NAME="localhost")
client.force_login(olga)

def page(path):
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.status_code)
    return answer.content.decode()

assert finders.find("supervision/console.css")
dashboard = page("/admin/")
assert "Open alerts" in dashboard and "order-laptop" in dashboard and "supervision/console.css" in dashboard
assert run.key in page("/admin/supervision/run/")
assert "no laptop is left" in page(f"/admin/supervision/run/{run.pk}/change/")
address = f"/admin/supervision/run/{run.pk}/operate/resubmit/"
hidden = dict(re.findall(r'<input type="hidden" name="(\\w+)" value="([^"]*)"', page(address)))
answer = client.post(address, hidden | {"reason": "a laptop came in"})
assert answer.status_code == 302, answer.content.decode()
"""


# The same operator at the API: finds the failed run by its alert, reads the plan, resubmits the step; another account may not.
CLIENT = """
import sys
import django
django.setup()
from django.contrib.auth import get_user_model
from django.test import Client

key = sys.argv[1]
accounts = get_user_model().objects
olga, eve = accounts.get_or_create(username="olga")[0], accounts.get_or_create(username="eve")[0]

def call(user, method, path, body=None):
    client = Client(SERVER_NAME="localhost")
    if user:
        client.force_login(user)
    answer = client.generic(method, f"/api/{path}", *([] if body is None else [body, "application/json"]))
    return answer.status_code, answer.json(), answer.headers

assert call(None, "GET", f"orders/{key}/")[0] == 403
assert call(eve, "GET", f"orders/{key}/")[0] == 403
assert call(eve, "POST", "webhooks/", "{}")[0] == 403
[alert] = [alert for alert in call(olga, "GET", "alerts/?acknowledged=false")[1]["results"] if alert["order"] == key]
assert alert["step"] == "order-laptop"
assert call(olga, "GET", f"orders/{key}/")[1]["process_state"] == "Error"
plan = call(olga, "GET", f"orders/{key}/plan/")[1]
assert [step["action"] for step in plan["steps"]] == ["keep", "run"]
address = f"orders/{key}/resubmit/"
status, refused, headers = call(olga, "POST", address, '{"reason": 1}')
assert (status, refused["errors"], headers["Content-Type"]) == (400, {"reason": ["Expected a string."]}, "application/problem+json")
for name in ("a\\\\u0000", "\\\\ud800"):
    status, refused, _ = call(olga, "POST", address, '{"reason": "x", "amend": {"%s": 1}}' % name)
    assert (status, refused["errors"]) == (400, {"amend": ["Control characters are not allowed."]}), refused
body = '{"reason": "a third came in", "plan_version": "%s"}' % plan["version"]
status, answer, headers = call(olga, "POST", address, body)
assert (status, answer["workflow"], headers["Location"]) == (202, "onboard", f"/api/orders/{key}/")
assert call(olga, "POST", address, body)[0] == 409
assert call(olga, "GET", "orders/an-unknown-public-id/")[0] == 404
"""


class Project:
    """A project in an environment of its own, on a database of its own."""

    def __init__(self, directory: Path, bin_: Path, database_url: str) -> None:
        self.directory, self.bin = directory, bin_
        self.app = directory / "hires"
        self.url = database_url
        parts = urlsplit(database_url)
        self.database = parts.path.removeprefix("/")
        given = {"PGHOST": unquote(parts.hostname or ""), "PGPORT": parts.port, "PGUSER": parts.username, "PGPASSWORD": parts.password}
        ours = ("CELERY", "DATABASE", "DJANGO", "PYTEST", "PYTHONPATH", "SUPERVISION", "VIRTUAL_ENV", "PG")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.env |= {name: unquote(str(value)) for name, value in given.items() if value}
        self.env |= {"DJANGO_SETTINGS_MODULE": "hiring.settings", "SUPERVISION_SWEEP_SECONDS": "1", "PATH": f"{bin_}:{os.environ['PATH']}"}
        self.env["PYTHONFAULTHANDLER"] = "1"  # a process that SIGABRT ends tells where its threads are

    def run(self, *command: str) -> str:
        """Run a program of the environment in the project; returns what it printed."""
        done = subprocess.run(
            [self.bin / command[0], *command[1:]],
            cwd=self.directory,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        return done.stdout

    def manage(self, *arguments: str) -> str:
        """A management command."""
        return self.run("python", "manage.py", *arguments)

    def work(self) -> subprocess.Popen[bytes]:
        """Start the process that the page names: every role in one."""
        [command] = re.findall(r"^    python (manage\.py work .*)$", PAGE, re.M)
        with (self.directory / "work.log").open("ab") as log:
            words = [self.bin / "python", *command.split()]
            self.process = subprocess.Popen(words, cwd=self.directory, env=self.env, stdout=log, stderr=log)
        return self.process

    def stop(self) -> None:
        """End the process. One that does not end within a minute of SIGTERM is a defect: it writes its threads' stacks."""
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            pytest.fail(f"the process did not end on SIGTERM:\n{(self.directory / 'work.log').read_text()[-6000:]}", pytrace=False)

    def submit(self, name: str) -> str:
        """Submit a run; returns its key."""
        return self.manage("shell", "-v", "0", "-c", f"from hires.submitting import onboard; print(onboard({name!r}))").split()[-1]

    def state(self, key: str) -> str:
        """A run's state; empty while it is only submitted."""
        with psycopg.connect(self.url) as connection:
            row = connection.execute("SELECT process_state FROM supervision_run WHERE key = %s", [key]).fetchone()
        return row[0] if row else ""

    def reaches(self, key: str, state: str) -> None:
        """Wait until a run is in this state."""
        self.waits(lambda: self.state(key) == state, f"the state {state} of {key}")

    def waits(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for the condition. The error shows what the processes wrote."""
        try:
            until(condition, within=180, what=what)
        except AssertionError as error:
            logs = [f"{path.name}:\n{path.read_text()[-3000:]}" for path in sorted(self.directory.glob("*.log"))]
            raise AssertionError("\n".join([str(error), *logs])) from None


def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pip as its own configuration and the environment say."""
    return subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False, timeout=400)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs in an empty environment, into which the wheel was installed with its extras."""
    directory = tmp_path_factory.mktemp("installed")
    probe = pip("download", "--quiet", "--no-deps", "--dest", str(directory / "probe"), "setuptools>=77")
    services.require_service("A package index", probe.returncode == 0, "pip finds no setuptools as it is configured")
    source = directory / "source"
    source.mkdir()
    for name in IN_THE_WHEEL:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    built = pip("wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory), str(source))
    assert built.returncode == 0, built.stderr
    [wheel] = directory.glob("sas_supervision-*.whl")
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(directory / "env")], check=True)
    programs = directory / "env" / "bin"
    installed = pip("--python", str(programs / "python"), "install", "--quiet", "--no-compile", f"{wheel}[api,console,pgmq,testing]")
    assert installed.returncode == 0, installed.stderr
    return programs


@pytest.fixture(scope="module")
def project(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """What `startproject` writes, with the files of the page beside it, migrated."""
    directory = tmp_path_factory.mktemp("blank")
    with scratch_database() as url:
        made = Project(directory, programs, url)
        subprocess.run([programs / "django-admin", "startproject", "hiring", "."], cwd=directory, env=made.env, check=True)
        made.app.mkdir()
        people = {"operator_at_work.py": OPERATOR, "client_at_work.py": CLIENT}
        texts = FILES | people | {"hires/__init__.py": "", "hires/services.py": SERVICES}
        for name, text in texts.items():
            with (directory / name).open("a") as file:
                file.write("\n" + text.replace('"NAME": "hiring"', f'"NAME": "{made.database}"'))
        with (directory / "hiring" / "settings.py").open("a") as file:
            file.write(TUNING)
        made.manage("migrate", "-v", "0")
        yield made
        if hasattr(made, "process"):  # a nightly run may start none
            made.stop()


MANAGER = """
import sys
import django
django.setup()
from django.contrib.auth import get_user_model
from django.test import Client

grace, _ = get_user_model().objects.get_or_create(username="grace", is_staff=True)
client = Client(SERVER_NAME="localhost")
client.force_login(grace)
answer = client.post(f"/claims/{sys.argv[1]}/decision/", {"approved": "yes"})
assert answer.status_code == 202, answer.content
"""
HAND_IN = """
import django
django.setup()
from django.test import Client

claim = '{"employee": "Ada", "items": [{"what": "flight", "amount": "350.00"}]}'
answer = Client(SERVER_NAME="localhost").generic("POST", "/claims/", claim, "application/json")
assert answer.status_code == 202, answer.content
print(answer.json()["id"])
"""


@pytest.mark.nightly
def test_the_second_application_passes_its_tests_and_a_person_approves_a_claim(programs: Path, tmp_path: Path):
    directory = tmp_path / "expenses"
    shutil.copytree(ROOT / "examples" / "expenses", directory, ignore=shutil.ignore_patterns("__pycache__"))
    (directory / "manager.py").write_text(MANAGER)
    (directory / "hand_in.py").write_text(HAND_IN)
    with scratch_database() as url:
        project = Project(directory, programs, url)
        project.env |= {"DJANGO_SETTINGS_MODULE": "expenses.settings", "DATABASE_NAME": project.database}
        assert "no issues" in project.manage("check")
        assert "No changes" in project.manage("makemigrations", "--check", "--dry-run")
        assert re.search(r"^9 passed in", project.run("python", "-m", "pytest", "-q", "tests"), re.M)
        project.manage("migrate", "-v", "0")
        project.work()
        try:
            claim = project.run("python", "hand_in.py").split()[-1]
            waiting = "SELECT count(*) FROM supervision_stepstate WHERE awaits = 'approval' AND process_state = 'Pending'"
            with psycopg.connect(url, autocommit=True) as database:
                project.waits(lambda: database.execute(waiting).fetchone() == (1,), "the wait for the manager")
            project.run("python", "manager.py", claim)
            project.reaches(claim, "Processed")
            project.reaches(f"{claim}:pay:child", "Processed")
        finally:
            project.stop()


@pytest.mark.nightly
def test_the_first_tutorial_prints_its_result(programs: Path, tmp_path: Path):
    page = (ROOT / "docs" / "first-workflow.md").read_text()
    files = dict(re.findall(r"^```python\n# ([\w/.]+)[^\n]*\n(.*?)^```$", page, re.M | re.S))
    files["tickets/workflows.py"] += "\nfrom tickets import undoing\n"  # as the page says
    with scratch_database() as url:
        project = Project(tmp_path, programs, url)
        project.env["DJANGO_SETTINGS_MODULE"] = "tickets.settings"
        subprocess.run([programs / "django-admin", "startproject", "tickets", "."], cwd=tmp_path, env=project.env, check=True)
        for name, text in files.items():
            with (tmp_path / name).open("a") as file:
                file.write("\n" + text.replace('"NAME": "tickets"', f'"NAME": "{project.database}"'))
        assert re.search(r"^3 passed in", project.run("python", "-m", "pytest", "-q", "tickets"), re.M)
        project.manage("migrate", "-v", "0")
        project.work()
        try:
            assert "Ada sits at 12C\n" in project.manage("shell", "-v", "0", "-c", "import tickets.buy")
        finally:
            project.stop()


def test_the_page_needs_few_lines_of_settings_and_wiring():
    assert set(FILES) == {
        *WIRING,
        "hires/workflows.py",
        "hires/services.py",
        "hires/submitting.py",
        "hires/test_onboard.py",
        "hiring/urls.py",
    }
    assert sum(bool(line.strip()) for name in WIRING for line in FILES[name].splitlines()) <= 12


def test_a_blank_project_passes_its_checks_and_has_no_migration_to_make(project: Project):
    assert "no issues" in project.manage("check")
    assert "No changes" in project.manage("makemigrations", "--check", "--dry-run")
    assert str(project.bin.parent) in project.run("python", "-c", "import supervision; print(supervision.__file__)")


def test_the_database_gives_no_submission_a_workflow_of_another_application(project: Project):
    with psycopg.connect(project.url) as database, pytest.raises(psycopg.errors.NotNullViolation, match='"workflow"'):
        database.execute("INSERT INTO supervision_submission (public_id, payload) VALUES ('x', '{}')")


def test_the_tests_of_the_page_pass_and_leave_the_projects_own_database_alone(project: Project):
    with psycopg.connect(project.url, autocommit=True) as database:
        database.execute("INSERT INTO supervision_deadletter (source, body, reason) VALUES ('test', 'x', 'kept')")
        assert re.search(r"^2 passed in", project.run("pytest", "-q", "hires"), re.M)
        assert database.execute("SELECT count(*) FROM supervision_deadletter").fetchone() == (1,)
        database.execute("DELETE FROM supervision_deadletter")


@pytest.mark.nightly
def test_a_kill_that_never_happened_fails_its_test(project: Project):
    (project.app / "test_kill.py").write_text("def test_kills_nothing(sas):\n    sas.kill('order-laptop')\n")
    told = project.run("python", "-c", "import pytest; pytest.main(['-q', 'hires/test_kill.py'])")
    assert "never happened: kill('order-laptop', 'agent.after_effect')" in told
    assert "1 passed, 1 error" in told


def test_runs_survive_a_killed_worker_and_a_refusal_that_an_operator_resubmits(project: Project):
    (project.app / "hold").touch()
    victim = project.work()
    first = project.submit("Ada")
    calls = project.app / "calls"
    project.waits(lambda: calls.is_file() and calls.read_text().startswith(f"{victim.pid} "), "the call by the worker")

    victim.kill()
    victim.wait()
    (project.app / "hold").unlink()
    (project.app / "refuse").touch()
    project.work()
    project.reaches(first, "Error")  # the first step was repeated by the new worker, and the second is refused
    made = [line.split()[1] for line in calls.read_text().splitlines()]
    assert len(made) >= 2
    assert len(set(made)) == 1, "every attempt carries the same key"

    (project.app / "refuse").unlink()
    project.run("python", "operator_at_work.py", first)
    project.reaches(first, "Processed")

    (project.app / "refuse").touch()
    second = project.submit("Grace")
    project.reaches(second, "Error")
    assert re.search(rf"^{second} +onboard +Error .*order-laptop: no laptop is left", project.manage("orders"), re.M)
    assert "no laptop is left" in project.manage("order", second)
    (project.app / "refuse").unlink()
    assert project.manage("resubmit", second, "--reason", "another came in") == f"{second}: Processing\n"
    project.reaches(second, "Processed")

    (project.app / "refuse").touch()
    third = project.submit("Lin")
    project.reaches(third, "Error")
    (project.app / "refuse").unlink()
    project.run("python", "client_at_work.py", third)
    project.reaches(third, "Processed")
    assert project.manage("audit")
