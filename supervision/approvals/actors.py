"""Who acts: an operator's account, the name of one without an account, or an actor that needs no operator's right."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.base_user import AbstractBaseUser


@dataclass(frozen=True)
class Exempt:
    """The customer of an order, or the shop or the engine itself: such an actor needs no second operator.

    by: its account or its name. An operator is exempt only for an order of the operator's own account.
    """

    by: AbstractBaseUser | str


Actor = AbstractBaseUser | str | Exempt


def account_of(by: Actor) -> AbstractBaseUser | None:
    """The account of this actor, if it has one."""
    who = by.by if isinstance(by, Exempt) else by
    return None if isinstance(who, str) else who


def name_of(by: Actor) -> str:
    """The name of this actor in an order's history."""
    who = by.by if isinstance(by, Exempt) else by
    return who if isinstance(who, str) else who.get_username()
