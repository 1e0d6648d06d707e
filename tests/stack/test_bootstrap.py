"""`./run` on machines without Python, pip or network: real shells, real interpreters, real HTTP."""

from __future__ import annotations

import hashlib
import http.server
import importlib.util
import json
import os
import shutil
import ssl
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from tests import services
from tests.support.serving import serving

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    """Load a script as a module; `scripts` is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


pip_wheel = load("pip_wheel")
bootstrap = load("bootstrap")


def run(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(cwd / "run"), *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300)


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def tools(tmp_path):
    """A PATH with what the script needs, and no Python."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("dirname", "uname"):
        (directory / name).symlink_to(shutil.which(name))
    return directory


def test_without_a_python_it_says_what_to_install(tools):
    done = run("demo", PATH=str(tools))

    assert done.returncode == 127
    assert "no Python 3.11 or newer found; install one" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_shim_without_a_python_behind_it_is_passed_over(tools):
    executable(tools / "python3.13", "#!/bin/sh\necho 'python3.13: command not found' >&2\nexit 127\n")
    executable(tools / "python3.12", "#!/bin/sh\nexit 1\n")  # stands for a Python that is too old or lacks a module
    (tools / "python3").symlink_to(sys.executable)

    done = run("help", PATH=str(tools))

    assert done.returncode == 0, done.stderr
    assert "./run COMMAND" in done.stdout


def test_a_named_python_goes_first(tools, tmp_path):
    mine = executable(tmp_path / "mine", f'#!/bin/sh\necho chosen >&2\nexec {sys.executable} "$@"\n')

    done = run("help", PATH=str(tools), PYTHON=str(mine))

    assert done.returncode == 0
    assert "chosen" in done.stderr


def test_an_unknown_command_is_refused_in_one_line():
    done = run("dmeo", PATH=os.environ["PATH"])

    assert done.returncode == 2
    assert done.stderr == "run: unknown command 'dmeo'; ./run help lists them\n"


def test_the_stamp_changes_with_an_included_file(tmp_path):
    (tmp_path / "base.txt").write_text("a==1\n")
    top = tmp_path / "top.txt"
    top.write_text("-r base.txt\nb==1\n")
    before = bootstrap.fingerprint(top, tmp_path)

    (tmp_path / "base.txt").write_text("a==2\n")

    assert bootstrap.fingerprint(top, tmp_path) != before


# --- fetching pip -----------------------------------------------------------------------------------------------------

WHEEL = "pip-26.3-py3-none-any.whl"
OLDER = "pip-23.0.1-py3-none-any.whl"
BODY = b"not really a wheel"


@pytest.fixture
def index(tmp_path):
    """A package index on HTTP; a file put into `root` is served."""
    root = tmp_path / "index"
    (root / "simple" / "pip").mkdir(parents=True)
    handler = partial(QuietHandler, directory=str(root))
    with serving(handler) as url:
        yield url, root


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        return


@pytest.fixture
def no_pip_configuration(monkeypatch, tmp_path):
    """Hide the machine's pip configuration, so that only the test's own applies."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


def test_the_newest_pip_of_a_configured_index_is_fetched_and_verified(index, no_pip_configuration, tmp_path):
    url, root = index
    digest = hashlib.sha256(BODY).hexdigest()
    links = [f'<a href="../../files/{name}#sha256={digest}">{name}</a>' for name in (WHEEL, OLDER, "pip-27.0b1-py3-none-any.whl")]
    (root / "simple" / "pip" / "index.html").write_text("\n".join(links))
    (root / "files").mkdir()
    (root / "files" / WHEEL).write_bytes(BODY)
    no_pip_configuration.setenv("PIP_INDEX_URL", f"{url}/simple")

    fetched = pip_wheel.fetch(tmp_path, None)

    assert fetched.name == WHEEL
    assert fetched.read_bytes() == BODY


def test_a_wheel_with_the_wrong_checksum_is_refused(index, no_pip_configuration, tmp_path):
    url, root = index
    (root / "simple" / "pip" / "index.html").write_text(f'<a href="{WHEEL}#sha256={"0" * 64}">x</a>')
    (root / "simple" / "pip" / WHEEL).write_bytes(BODY)
    no_pip_configuration.setenv("PIP_INDEX_URL", f"{url}/simple/")

    with pytest.raises(pip_wheel.NotFound, match="checksum"):
        pip_wheel.fetch(tmp_path, None)
    assert not (tmp_path / WHEEL).exists()


def test_only_the_locked_pip_is_fetched(index, no_pip_configuration, tmp_path):
    url, root = index
    page, files = root / "simple" / "pip" / "index.html", root / "files"
    files.mkdir()
    for name in (WHEEL, OLDER):
        (files / name).write_bytes(BODY)
    page.write_text("\n".join(f'<a href="../../files/{name}">{name}</a>' for name in (WHEEL, OLDER)))
    no_pip_configuration.setenv("PIP_INDEX_URL", f"{url}/simple")
    older = pip_wheel.Locked((23, 0, 1), frozenset({hashlib.sha256(BODY).hexdigest()}))

    assert pip_wheel.fetch(tmp_path, older).name == OLDER
    with pytest.raises(pip_wheel.NotFound, match="is not in requirements-pip"):
        pip_wheel.fetch(tmp_path, pip_wheel.Locked((26, 3), frozenset({"0" * 64})))
    with pytest.raises(pip_wheel.NotFound, match=r"no pip 99\.0 there"):
        pip_wheel.fetch(tmp_path, pip_wheel.Locked((99, 0), older.hashes))


def test_the_lock_file_of_pip_names_one_version_and_its_hashes():
    locked = pip_wheel.locked()

    assert locked.version >= pip_wheel.OLDEST
    assert locked.hashes


def test_a_file_with_another_hash_than_the_locked_is_not_installed(tmp_path):
    tree = tmp_path / "tree"
    (tree / "scripts").mkdir(parents=True)
    for name in ("bootstrap.py", "pip_wheel.py"):
        shutil.copy(ROOT / "scripts" / name, tree / "scripts" / name)
    shutil.copy(ROOT / "run", tree / "run")
    (tree / ".venv").symlink_to(ROOT / ".venv")  # it has a pip; the stamps are the tree's own
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "harmless-1.0-py3-none-any.whl").write_bytes(BODY)
    (tree / "requirements-dev.lock").write_text(f"harmless==1.0 --hash=sha256:{'0' * 64}\n")

    done = run("setup", cwd=tree, PATH=os.environ["PATH"], HOME=str(tmp_path), PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))

    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert "UNLOCKED=1 installs without the lock files" in done.stderr


def test_yanked_wheels_are_left_out_and_json_is_understood(index, no_pip_configuration):
    url, root = index
    files = [{"url": f"{url}/{WHEEL}", "hashes": {}, "yanked": True}, {"url": f"{url}/{OLDER}", "hashes": {}}]
    (root / "page.json").write_text(json.dumps({"files": files}))

    found = pip_wheel.listing(f"{url}/page.json", ssl.create_default_context())

    assert [wheel.version for wheel in found] == [(23, 0, 1)]


def test_a_directory_of_wheels_is_enough(no_pip_configuration, tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / WHEEL).write_bytes(BODY)
    no_pip_configuration.setenv("PIP_FIND_LINKS", str(wheels))
    no_pip_configuration.setenv("PIP_NO_INDEX", "1")

    assert pip_wheel.fetch(tmp_path, None).read_bytes() == BODY


def test_the_environment_wins_over_pips_files(no_pip_configuration, tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://files.example/simple\nextra-index-url = https://one.example\n  https://two.example\n")
    no_pip_configuration.setenv("PIP_CONFIG_FILE", str(config))
    from_file = pip_wheel.places(pip_wheel.pip_configuration())
    no_pip_configuration.setenv("PIP_INDEX_URL", "https://environment.example/simple")
    from_environment = pip_wheel.places(pip_wheel.pip_configuration())

    assert from_file == ["https://files.example/simple/pip/", "https://one.example/pip/", "https://two.example/pip/"]
    assert from_environment[0] == "https://environment.example/simple/pip/"


def test_nothing_configured_means_the_public_index(no_pip_configuration):
    assert pip_wheel.places(pip_wheel.pip_configuration()) == ["https://pypi.org/simple/pip/"]


def test_an_unreachable_index_is_named_without_its_password(no_pip_configuration, tmp_path):
    no_pip_configuration.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:9/simple")

    with pytest.raises(pip_wheel.NotFound) as problem:
        pip_wheel.fetch(tmp_path, None)

    assert "127.0.0.1:9/simple" in str(problem.value)
    assert "secret" not in str(problem.value)


@pytest.mark.parametrize(("given", "told"), [((), bootstrap.QUICK), (("tests/e2e",), ("tests/e2e",))])
def test_tests_that_nothing_is_said_about_start_no_shop_and_no_browser(monkeypatch, given, told):
    started = []
    monkeypatch.setattr(bootstrap, "ensure", lambda name, directory: None)
    monkeypatch.setattr(bootstrap.os, "environ", dict(os.environ))
    monkeypatch.setattr(bootstrap.os, "execv", lambda program, arguments: started.append(arguments[1:]))

    bootstrap.main(["test", *given])

    assert started == [["-m", "pytest", *told]]
    assert "not slow" in bootstrap.QUICK[-1]


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_fresh_copy_starts_from_a_bare_python(tmp_path):
    system = "/usr/bin/python3"
    probe = [system, "-c", "import ssl, sys, venv; sys.exit(sys.version_info < (3, 11))"]
    usable = os.path.exists(system) and subprocess.run(probe, check=False, capture_output=True).returncode == 0
    services.require_service("A bare system Python 3.11", usable, "it is tried at /usr/bin/python3")
    services.require_service("The public package index", services.listens("https://pypi.org:443"), "no way there from here")
    tree = tmp_path / "tree"
    ignored = shutil.ignore_patterns(".venv*", ".git", "var", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, tree, ignore=ignored)
    home = tmp_path / "home"
    home.mkdir()
    certificates = {name: os.environ[name] for name in ("SSL_CERT_FILE",) if name in os.environ}

    first = run("demo", "--help", cwd=tree, HOME=str(home), PATH="/usr/bin:/bin", **certificates)
    second = run("demo", "--help", cwd=tree, HOME=str(home), PATH="/usr/bin:/bin", **certificates)

    assert first.returncode == 0, first.stderr
    assert "--ready-file" in first.stdout
    assert "installing" in first.stderr
    assert second.returncode == 0
    assert second.stderr == ""
