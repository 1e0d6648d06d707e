"""A whole shop whose roles each have a user of their own at RabbitMQ, made by the product's command."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.shop import Shop, role_of
from sasproject.roles import ROOT
from tests import services
from tests.support.shop import first_port, scratch_database


class ShopOfUsers(Shop):
    """A shop in which each role signs in at the broker as itself, and declares nothing."""

    urls: dict[str, str]
    account: str
    reply: tuple[str, str]  # a reply token of the account and its queue

    def _spawn(self, name: str, command: list[str], **environ: str) -> None:
        if role_of(name) in self.urls:
            environ = {"CELERY_BROKER_URL": self.urls[role_of(name)], "CELERY_BROKER_DECLARE": "0", **environ}
        super()._spawn(name, command, **environ)

    def command(self, *arguments: str, role: str, check: bool = True) -> str:
        """Run this program of Python as the broker's user of a role; returns what it printed."""
        env = {**self.env, "CELERY_BROKER_URL": self.urls[role]}
        done = subprocess.run([sys.executable, *arguments], env=env, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
        assert not (check and done.returncode), done.stdout + done.stderr
        return done.stdout + done.stderr

    def celery(self, *arguments: str, check: bool = True) -> str:
        """Celery's own command, with the right to control."""
        return self.command("-m", "celery", "-A", "sasproject", *arguments, role="control", check=check)


def addresses(printed: str) -> dict[str, str]:
    """The addresses that the command printed, by user."""
    found = (line.split() for line in printed.splitlines())
    return {words[0].rstrip(":"): words[-1] for words in found if words and words[-1].startswith("amqp://")}


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A shop on RabbitMQ with a user for each role, and one client account that publishes and reads."""
    services.require_rabbitmqctl()
    directory = tmp_path_factory.mktemp("users")
    mark = uuid.uuid4().hex[:8]
    with services.own_vhost() as url, scratch_database(directory) as database_url:
        running = ShopOfUsers(
            database_url, url, directory, first_port=first_port(), SUPERVISION_LOCAL_PICKUP="0", SUPERVISION_SWEEP_SECONDS="1",
            SUPERVISION_CANARY_SECONDS="2", CELERY_TASK_EVENTS="1",
        )  # fmt: skip
        running.account = f"acme-{mark}"
        running.urls = {}
        made: list[str] = [running.account]
        try:
            running.start_simulators(wait=False)
            running.prepare()
            prefix = f"t{mark}-"
            given = addresses(running.manage("broker_users", "--apply", "--prefix", prefix))
            made += given
            running.urls = {name.removeprefix(prefix): address for name, address in given.items()}
            running.command("manage.py", "broker_topology", role="setup")
            running.manage("create_user", running.account, "--group", "client", "--password", f"pw-{uuid.uuid4()}")
            running.start("web", "scheduler", "agents", "supervisor", "beat")
            headers = running.headers(running.account)
            answer = running.http.post("/api/v1/reply-tokens/", headers=headers).json()
            running.reply = (answer["token"], answer["queue"])
            out = running.manage("broker_users", "--apply", "--producer", running.account, "--client", running.account)
            running.urls["account"] = addresses(out)[running.account]
            yield running
        finally:
            running.close()
            for name in made:
                subprocess.run(["rabbitmqctl", "-q", "delete_user", name], capture_output=True, check=False, timeout=60)
