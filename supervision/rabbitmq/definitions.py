"""Users with their permissions, as RabbitMQ's definitions and as lines for `rabbitmqctl`."""

from __future__ import annotations

import hashlib
import secrets
import shlex
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from supervision.rabbitmq.roles import Rights
from supervision.transports.topology import TASKS


@dataclass(frozen=True)
class User:
    """One user. password: None leaves the one that it has."""

    name: str
    rights: Rights
    password: str | None = None


def new_password() -> str:
    """A random password that needs no escape in a URL."""
    return secrets.token_urlsafe(24)


def hashed(password: str) -> str:
    """The hash that RabbitMQ stores: the server never sees the password here."""
    salt = secrets.token_bytes(4)
    return b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def definitions(users: Sequence[User], vhost: str) -> dict[str, Any]:
    """RabbitMQ's definitions of these users in this virtual host."""
    return {
        "users": [
            {"name": user.name, "password_hash": hashed(user.password), "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""}
            for user in users
            if user.password is not None
        ],
        "permissions": [
            {
                "user": user.name,
                "vhost": vhost,
                "configure": user.rights.configure,
                "write": user.rights.write,
                "read": user.rights.read,
            }
            for user in users
        ],
        "topic_permissions": [
            {"user": user.name, "vhost": vhost, "exchange": TASKS, "write": user.rights.keys, "read": user.rights.binds} for user in users
        ],
    }


def lines(users: Sequence[User], vhost: str) -> Iterator[str]:
    """The same as commands for a shell. `add_user` asks for the password."""
    for user in users:
        rights = user.rights
        yield shlex.join(["rabbitmqctl", "add_user", user.name])
        yield shlex.join(["rabbitmqctl", "set_permissions", "-p", vhost, user.name, rights.configure, rights.write, rights.read])
        yield shlex.join(["rabbitmqctl", "set_topic_permissions", "-p", vhost, user.name, TASKS, rights.keys, rights.binds])
