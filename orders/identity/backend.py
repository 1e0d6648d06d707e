"""The first authentication backend: it counts the try, and ends it before any password is hashed if there were too many."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.core.exceptions import PermissionDenied
from django.dispatch import receiver

from orders.identity import attempts, devices, sessions


class Guard:
    """Finds no account itself, and so has no `get_user`. Behind it, every page that signs people in is limited."""

    def authenticate(self, request: Any, username: str | None = None, password: str | None = None, **kwargs: Any) -> None:
        """Raise PermissionDenied if the limit is reached; Django then asks no other backend."""
        if request is None or username is None or password is None:
            return
        request.sign_in_try = attempts.begin(request, username)
        if request.sign_in_try.wait:
            raise PermissionDenied


@receiver(user_logged_in, dispatch_uid="orders.identity")
def _signed_in(request: Any, user: User, **kwargs: Any) -> None:
    """Give the try back, and know the browser from now on."""
    if request is None or not hasattr(request, "COOKIES"):
        return
    if done := getattr(request, "sign_in_try", None):
        attempts.forgive(done)
        request.sign_in_try = None
    devices.remember(request, user)
    sessions.begin(request, user)
