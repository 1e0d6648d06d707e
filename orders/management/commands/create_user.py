"""Make an account in one of the four groups."""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.db import transaction

from supervision.management.base import Command as Base

STAFF = ("operator", "viewer")
GROUPS = ("customer", "client", *STAFF)


class Command(Base):
    """Makes an account in the group customer, client, operator or viewer."""

    help = (
        "Make an account. Groups: customer (own orders), client (a shop's server: own orders, batches, webhooks, high "
        "priority), operator (all orders and the verbs on them), viewer (all orders, read only). Operators and viewers "
        "may enter the console. Prints a password when none is given."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME")
        parser.add_argument("--group", required=True, choices=GROUPS)
        parser.add_argument("--password", metavar="P", help="by the rules of the sign-up page; made up and printed once when not given")
        parser.add_argument("--email", default="", metavar="ADDRESS")

    def handle(self, *args: Any, **options: Any) -> None:
        model, name, group = get_user_model(), options["name"], options["group"]
        password = options["password"]
        if password == "":
            raise CommandError("--password must not be empty; leave it out to have one made up")
        try:
            belongs_to = Group.objects.get(name=group)
        except Group.DoesNotExist:
            raise CommandError(f"the group {group!r} is not in the database: run manage.py migrate") from None
        if model.objects.filter(username=name).exists():
            raise CommandError(f"an account named {name!r} exists already; change it in the admin, or use changepassword")
        user = model(username=name, email=options["email"], is_staff=group in STAFF)
        user.set_password(password or (made_up := secrets.token_urlsafe(12)))
        try:
            user.full_clean(exclude=["password"])
            if password:
                validate_password(password, user)
        except ValidationError as problem:
            raise CommandError("; ".join(problem.messages)) from None
        with transaction.atomic():
            user.save()
            user.groups.add(belongs_to)
        self.stdout.write(f"{name}: account in the group {group}")
        if not password:
            self.stdout.write(f"password: {made_up}")
