"""Authentication: a token, checked in one query, or else the browser's session with CSRF, whose account's rights are read in one."""

from __future__ import annotations

from functools import cache
from hmac import compare_digest
from typing import Any, cast

from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from knox.auth import TokenAuthentication
from knox.crypto import hash_token
from knox.models import get_token_model
from knox.settings import CONSTANTS
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied

from orders.identity import tokens
from orders.identity.tables import TokenGrant
from supervision.postgres import db

PATIENCE_SECONDS = 5.0  # short, because the client waits for the answer


class TokenInOneQuery(TokenAuthentication):  # type: ignore[misc]
    """Knox's tokens, read with their account and its groups in one prepared statement.

    Knox itself runs three queries for each request and also deletes the account's expired tokens.
    """

    def authenticate(self, request: Any) -> tuple[Any, Any] | None:
        """The account, with as many of its rights as the token's scope carries."""
        found = cast("tuple[Any, Any] | None", super().authenticate(request))
        if found is not None:
            tokens.restrict(request, found[0], found[0].token_scope)
        return found

    def authenticate_credentials(self, token: bytes) -> tuple[Any, Any]:
        """The account and its token's digest. A refusal never tells the client the reason."""
        try:
            text = token.decode("ascii")
            digest = hash_token(text)
        except ValueError:
            raise AuthenticationFailed(_("Invalid token.")) from None
        if not text.isprintable():
            raise AuthenticationFailed(_("Invalid token."))
        rows = db.run(_statement(), {"prefix": text[: CONSTANTS.TOKEN_KEY_LENGTH]}, patience=PATIENCE_SECONDS)
        for known, fresh, scope, groups, *account in rows:
            if compare_digest(digest, known) and fresh:
                user = User.from_db("default", _columns(), account)
                if user.is_active:
                    cast(Any, user)._group_names = frozenset(groups)
                    cast(Any, user).token_scope = scope
                    return user, known
        raise AuthenticationFailed(_("Invalid token."))


class SecondFactorNeeded(PermissionDenied):
    """The session's account may enter the console or has an operator's right, and has not passed its second factor."""

    default_code = "second_factor_needed"
    default_detail = _lazy("This session has not passed a second factor.")


class WholeSession(SessionAuthentication):
    """The browser's session with CSRF. One that awaits a second factor is refused: it is signed in by half."""

    def authenticate(self, request: Any) -> tuple[Any, Any] | None:
        """The session's account; None without a session. Raises SecondFactorNeeded."""
        found = super().authenticate(request)
        if found is None:
            return None
        account: Any = found[0]
        # One that enters the console and awaits a second factor has no groups already. A superuser's rights are not listed.
        if not account.is_superuser and not hasattr(account, "_group_names"):
            [(groups, rights)] = db.run(_rights(), {"user": account.pk}, patience=PATIENCE_SECONDS)
            account._group_names, account._perm_cache = frozenset(groups), set(rights)  # the latter is Django's name
        if getattr(account, "awaits_second_factor", False):
            raise SecondFactorNeeded
        return found


@cache
def _columns() -> list[str]:
    return [field.attname for field in User._meta.concrete_fields]


@cache
def _rights() -> str:
    """The names of an account's groups, and the rights that it has by itself and by its groups, as Django writes them."""
    groups, rights, kinds = Group._meta.db_table, Permission._meta.db_table, ContentType._meta.db_table
    of_user, own = User.groups.through._meta.db_table, User.user_permissions.through._meta.db_table
    of_group = Group.permissions.through._meta.db_table
    return f"""
    SELECT ARRAY(SELECT g.name FROM {of_user} m JOIN {groups} g ON g.id = m.group_id WHERE m.user_id = %(user)s),
           ARRAY(SELECT k.app_label || '.' || p.codename FROM {rights} p JOIN {kinds} k ON k.id = p.content_type_id WHERE p.id IN (
                 SELECT o.permission_id FROM {own} o WHERE o.user_id = %(user)s UNION ALL
                 SELECT r.permission_id FROM {of_user} m JOIN {of_group} r ON r.group_id = m.group_id WHERE m.user_id = %(user)s))
    """  # noqa: S608 - names of our own tables


@cache
def _statement() -> str:
    tokens, users, groups = get_token_model()._meta.db_table, User._meta.db_table, Group._meta.db_table
    scopes = TokenGrant._meta.db_table
    of_user = User.groups.through._meta.db_table
    account = ", ".join(f"u.{field.column}" for field in User._meta.concrete_fields)
    return f"""
    SELECT t.digest, t.expiry IS NULL OR t.expiry > now(), (SELECT s.scope FROM {scopes} s WHERE s.token_id = t.digest),
           ARRAY(SELECT g.name FROM {of_user} m JOIN {groups} g ON g.id = m.group_id WHERE m.user_id = u.id), {account}
      FROM {tokens} t JOIN {users} u ON u.id = t.user_id
     WHERE t.token_key = %(prefix)s
    """  # noqa: S608 - names of our own tables
