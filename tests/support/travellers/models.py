"""The accounts, as https://docs.djangoproject.com/en/5.2/topics/auth/customizing/ shows how to make them."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.db import models


class TravellerManager(BaseUserManager["Traveller"]):
    """Makes accounts. It has none of the further methods of Django's own manager, such as `with_perm`."""

    def create_user(self, email: str, **fields: Any) -> Traveller:
        """A new account."""
        account = self.model(email=email, **fields)
        account.save()
        return account


class Traveller(AbstractBaseUser, PermissionsMixin):
    """One account."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    email = models.EmailField(unique=True)
    is_staff = models.BooleanField(default=False)
    is_active = models.BooleanField(default=True)

    USERNAME_FIELD = "email"
    objects = TravellerManager()
