"""Set up RabbitMQ's users: one per role, producer and client, each with the least permissions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from celery import current_app
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError, CommandParser
from kombu.connection import Connection

from supervision.insight import directory
from supervision.management.base import Command as Base
from supervision.outbox import subscriptions
from supervision.rabbitmq import definitions, roles
from supervision.rabbitmq.definitions import User
from supervision.rabbitmq.server import Api, Ctl, Server, ServerError
from supervision.transports import topology

NAME = re.compile(r"[A-Za-z0-9@._+-]{1,150}")


class Command(Base):
    """Without --apply it changes nothing."""

    help = (
        "Set up RabbitMQ's users: without --producer and --client one for each role, with them these accounts alone. Shows the "
        "commands of rabbitmqctl; --apply executes them and shows each new password once. May be repeated: a user that exists "
        "keeps its password, and gets the permissions that the names and options say. The virtual host is the one of "
        "CELERY_BROKER_URL."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--apply", action="store_true", help="do it; without this, only show it")
        parser.add_argument("--producer", action="append", default=[], metavar="NAME", help="this account may publish to the intake")
        parser.add_argument("--client", action="append", default=[], metavar="NAME", help="this account may read its reply queues")
        parser.add_argument("--rotate", action="append", default=[], metavar="NAME", help="give this role or account a new password")
        parser.add_argument("--revoke", action="append", default=[], metavar="NAME", help="delete this account's user, and no more")
        parser.add_argument("--passwords", type=Path, metavar="DIRECTORY", help="take passwords from its files, each named like a user")
        parser.add_argument("--prefix", default="sas-", help="before the name of each role (default sas-)")
        parser.add_argument("--vhost", help="another virtual host than that of CELERY_BROKER_URL")
        door = parser.add_mutually_exclusive_group()
        door.add_argument("--rabbitmqctl", default="rabbitmqctl", metavar="COMMAND", help='such as "docker exec -i mq rabbitmqctl"')
        door.add_argument("--api", metavar="URL", help="the management plugin instead: http://user:password@host:15672")

    def handle(self, *args: Any, **options: Any) -> None:
        self.prefix = options["prefix"]
        vhost = options["vhost"] or self._vhost()
        accounts = [*dict.fromkeys([*options["producer"], *options["client"]])]
        for name in (*accounts, *options["revoke"]):
            self._check(name)
        try:
            server: Server = Api(options["api"], current_app.conf.broker_use_ssl) if options["api"] else Ctl(options["rabbitmqctl"])
            if options["revoke"]:
                if accounts or options["rotate"]:
                    raise CommandError("--revoke stands alone")
                self._revoke(server, options["revoke"], apply=options["apply"])
                return
            rights = self._rights(options, accounts)
            if options["apply"]:
                self._apply(server, rights, vhost, options)
            else:
                self._show(rights, vhost)
        except ServerError as error:
            raise CommandError(str(error)) from error

    def _vhost(self) -> str:
        url = current_app.conf.broker_url
        if not topology.is_rabbitmq(url):
            raise CommandError("CELERY_BROKER_URL names no RabbitMQ: set it, or give --vhost")
        return str(Connection(url).virtual_host or "/")

    def _check(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise CommandError(f"{name!r} is no name of an account: letters, digits and @ . _ + - alone, at most 150")
        if name.startswith(self.prefix):
            raise CommandError(f"{name!r} begins with {self.prefix!r}, as the roles' users do: choose another name, or another --prefix")

    def _rights(self, options: dict[str, Any], accounts: list[str]) -> dict[str, roles.Rights]:
        """Each user's name with its rights. Raises CommandError if --rotate names none of them."""
        rights = {} if accounts else {f"{self.prefix}{role}": given for role, given in roles.ROLES.items()}
        model = get_user_model()
        named = model._default_manager.filter(**{f"{model.USERNAME_FIELD}__in": accounts})
        known = {account.get_username(): account for account in named}
        for name in accounts:
            client = directory.current().client_of(known[name]) if name in known else None
            if client is None:
                raise CommandError(f"{name} is no client's account here: make it first")
            reads = [token.queue for token in subscriptions.tokens_of(client)] if name in options["client"] else []
            if name in options["client"] and not reads:
                self.stderr.write(f"{name} has no reply queue yet: once it has a reply token, run this again")
            rights[name] = roles.account(produces=name in options["producer"], reads=reads)
        for name in options["rotate"]:
            if name not in rights and f"{self.prefix}{name}" not in rights:
                raise CommandError(f"--rotate {name}: there are {', '.join(rights)}")
        return rights

    def _show(self, rights: dict[str, roles.Rights], vhost: str) -> None:
        for line in definitions.lines([User(name, given) for name, given in rights.items()], vhost):
            self.stdout.write(line)
        self.stderr.write("Nothing is changed: --apply executes this.")

    def _revoke(self, server: Server, names: list[str], *, apply: bool) -> None:
        there = server.users()
        for name in names:
            if there.get(name):
                raise CommandError(f"{name} has the tag {there[name][0]}: it is no producer's or client's user")
            if name not in there:
                self.stdout.write(f"{name}: there is no such user")
            elif apply:
                server.delete_user(name)
                self.stdout.write(f"{name}: revoked")
            else:
                self.stdout.write(f"rabbitmqctl delete_user {name}")

    def _apply(self, server: Server, rights: dict[str, roles.Rights], vhost: str, options: dict[str, Any]) -> None:
        there = server.users()
        rotated = {*options["rotate"], *(f"{self.prefix}{name}" for name in options["rotate"])}
        users = []
        for name, given in rights.items():
            if there.get(name):
                raise CommandError(f"{name} has the tag {there[name][0]}: it is no user of a role or an account")
            password = None
            if options["passwords"]:
                password = self._from_file(options["passwords"] / name)
            elif name not in there or name in rotated:
                password = definitions.new_password()
            users.append(User(name, given, password))
        server.load(definitions.definitions(users, vhost))
        for user in users:
            state = "made" if user.name not in there else "changed" if user.password is not None else "as it was, its password too"
            address = "" if user.password is None or options["passwords"] else f"  {self._address(user, vhost)}"
            self.stdout.write(f"{user.name}: {state}{address}")

    def _from_file(self, path: Path) -> str:
        try:
            password = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"--passwords: {path}: {getattr(error, 'strerror', None) or error}") from None
        if len(password) < 12:
            raise CommandError(f"--passwords: {path}: expected a password of at least 12 characters")
        return password

    def _address(self, user: User, vhost: str) -> str:
        parts = urlsplit(current_app.conf.broker_url)
        ours = topology.is_rabbitmq(current_app.conf.broker_url)
        where = (parts.netloc.rpartition("@")[2] if ours else "") or "localhost:5672"
        return f"{parts.scheme if ours else 'amqp'}://{quote(user.name, safe='')}:{user.password}@{where}/{quote(vhost, safe='')}"
