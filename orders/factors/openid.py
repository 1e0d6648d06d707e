"""OpenID Connect for the console: the provider says who it is, and OIDC_GROUPS what its groups may do here.

An account belongs to the provider's identifier of a person (`sub`) alone. It is never joined with an account of the same mail
address or name, and has no password. Its groups are those of the provider at each sign-in.

A provider that knows its user from before asks for nothing. So what counts as the proof is the moment at which it has asked
(`auth_time`), and who is signed in here already is asked by it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import urlencode

import jwt
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter, get_adapter
from allauth.socialaccount.models import SocialAccount
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from requests import RequestException

from orders.factors import proofs, tries
from orders.factors.asking_again import wait_in_words
from orders.factors.pages import safe_next
from sasproject.factors import GROUPS, OIDC_PROVIDER

log = logging.getLogger(__name__)
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
BACKEND = "django.contrib.auth.backends.ModelBackend"


class _Verified(OpenIDConnectOAuth2Adapter):
    """Checks the signature of each identity token, also of one that came over a connection of our own, by one of ALGORITHMS."""

    def _decode_id_token(self, app: Any, id_token: str) -> dict[str, Any]:
        with get_adapter().get_requests_session() as session:
            answer = session.get(self.openid_config["jwks_uri"])
        answer.raise_for_status()
        named = jwt.get_unverified_header(id_token).get("kid")
        keys = [key for key in jwt.PyJWKSet.from_dict(answer.json()).keys if named is None or key.key_id == named]
        if len(keys) != 1:
            raise jwt.InvalidTokenError(f"{len(keys)} keys of the provider are named {named!r}")
        return dict(
            jwt.decode(
                id_token, keys[0].key, algorithms=ALGORITHMS, audience=app.client_id, issuer=self.openid_config["issuer"], leeway=60,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        )  # fmt: skip


class Console(DefaultSocialAccountAdapter):
    """What happens once the provider has said who it is."""

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> NoReturn:
        """Sign in, or say why not. allauth's own steps after this one are never reached."""
        said = sociallogin.account.extra_data
        token, more = said.get("id_token") or {}, said.get("userinfo") or {}
        if not token or (more and more.get("sub") != token.get("sub")):
            _refuse(request, _("The answer of the provider does not say who you are."))
        groups = _groups({**more, **token})
        account = _account(sociallogin.account, {**more, **token}, groups)
        if not groups or account is None:
            _refuse(request, _("You are in none of the provider's groups that may enter this console. Ask for it, and sign in again."))
        second = settings.OIDC_TRUSTS_MFA and _by_several_factors(token)
        if not account.is_active or not proofs.sign_in(request, account, BACKEND, second=second, at=_asked_at(token)):
            _refuse(request, _("Your account is not active. Ask an administrator."))
        raise ImmediateHttpResponse(redirect(safe_next(request, sociallogin.state.get("next"))))

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> NoReturn:
        """Say that it did not work."""
        log.warning("the provider of OIDC_ISSUER signed no one in: %s, %r", error, exception)
        _refuse(request, _("The provider did not sign you in. Try again, or sign in with your password."))


def _groups(claims: Mapping[str, Any]) -> set[str]:
    theirs = claims.get("groups") or []
    theirs = [theirs] if isinstance(theirs, str) else theirs if isinstance(theirs, list) else []
    return {settings.OIDC_GROUPS[name] for name in theirs if isinstance(name, str) and name in settings.OIDC_GROUPS}


def _by_several_factors(token: Mapping[str, Any]) -> bool:
    """Whether the signed token says that the provider asked for more than a password."""
    amr, acr = token.get("amr"), str(token.get("acr") or "")
    return (isinstance(amr, list) and "mfa" in amr) or acr == "mfa" or acr.endswith((":mfa", "/multi-factor"))


def _asked_at(token: Mapping[str, Any]) -> float | None:
    """When the provider has asked its user for a password; None if it does not tell."""
    said = token.get("auth_time")
    return min(float(said), time.time()) if isinstance(said, int | float) and not isinstance(said, bool) else None


@transaction.atomic
def _account(said: SocialAccount, claims: Mapping[str, Any], groups: set[str]) -> User | None:
    """The account of this person, with the groups that the provider names now; None for a stranger who is in none."""
    same = SocialAccount.objects.filter(provider=said.provider, uid=said.uid)
    known = same.select_related("user").select_for_update(no_key=True).first()  # neither can be removed meanwhile
    if known is None and not groups:
        return None
    mail = str(claims.get("email") or "")[:254] if claims.get("email_verified") is True else ""
    account: User
    if known is None:
        account = User(username=_free_name(str(claims.get("preferred_username") or said.uid)), email=mail)
        account.set_unusable_password()
        account.save()
        SocialAccount.objects.create(user=account, provider=said.provider, uid=said.uid, extra_data={})
    else:
        account = known.user
        SocialAccount.objects.filter(pk=known.pk).update(extra_data={})  # what the provider told of the person is not kept
    if account.is_staff != bool(groups):
        account.is_staff = bool(groups)
        account.save(update_fields=["is_staff"])
    account.groups.remove(*Group.objects.filter(name__in=set(GROUPS) - groups))  # also one that OIDC_GROUPS gave before
    account.groups.add(*Group.objects.filter(name__in=groups))
    return account


def _free_name(wish: str) -> str:
    """A username that no account has."""
    wish = "".join(char for char in wish if char.isalnum() or char in "@.+-_")[:100] or "operator"
    taken, name, number = set(User.objects.filter(username__startswith=wish).values_list("username", flat=True)), wish, 1
    while name in taken:
        number += 1
        name = f"{wish}-{number}"
    return name


def _refuse(request: HttpRequest, why: str) -> NoReturn:
    raise ImmediateHttpResponse(_refusal(request, why, 403))


def _refusal(request: HttpRequest, why: str, status: int) -> HttpResponse:
    facts = {**admin.site.each_context(request), "title": _("Not signed in"), "why": why}
    return render(request, "orders/factors/refused.html", facts, status=status)


def _by(view: Any, request: HttpRequest) -> HttpResponseBase:
    if not settings.SOCIALACCOUNT_PROVIDERS:
        raise Http404
    done = tries.begin_unnamed(request)
    if done.wait:
        return _refusal(request, wait_in_words(done), 429)
    try:
        answer: HttpResponseBase = view.adapter_view(_Verified(request, OIDC_PROVIDER))(request)
    except (RequestException, jwt.PyJWTError, KeyError, ValueError) as problem:
        log.warning("the provider of OIDC_ISSUER does not answer as it should: %r", problem)
        return _refusal(request, _("The provider does not answer as it should. Try again, or sign in with your password."), 502)
    return answer


@never_cache
@require_GET
def begin(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """Go to the provider. It is asked to tell `auth_time`: with `max_age` it has to. Of the address of ours, only `next` counts."""
    age = {"prompt": "login", "max_age": 0} if request.user.is_authenticated else {"max_age": int(settings.OPERATOR_SESSION_SECONDS)}
    said: Any = QueryDict(urlencode({"next": request.GET.get("next", ""), "auth_params": urlencode(age)}))
    request.GET = said
    return _by(OAuth2LoginView, request)


@never_cache
@require_GET
def finish(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """Come back from the provider."""
    return _by(OAuth2CallbackView, request)
