"""Django's command, which here checks the password by the rules also if it comes from the environment."""

from __future__ import annotations

import os
from typing import Any

from django.contrib.auth.management.commands import createsuperuser
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError


class Command(createsuperuser.Command):
    """Django looks at a password that is typed. This looks at the one in the environment, too."""

    def handle(self, *args: Any, **options: Any) -> str | None:
        """Refuse a password that the sign-up page would refuse."""
        password = os.environ.get("DJANGO_SUPERUSER_PASSWORD")
        if password is not None and not options["interactive"]:
            account = User(username=options.get("username") or "", email=options.get("email") or "")
            try:
                validate_password(password, account)
            except ValidationError as problem:
                raise CommandError("; ".join(problem.messages)) from None
        return super().handle(*args, **options)
