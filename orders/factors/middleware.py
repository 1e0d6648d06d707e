"""Sends a session that awaits a second factor to the page that asks for it, and asks again before a verb that moves money.

A request that does not ask for the account costs no query here, nor does one of a shopper, except on the pages of the own account
and at the API by session: there the account's rights are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin
from django.utils.functional import SimpleLazyObject

from orders.factors import asking_again, proofs
from supervision.errors import ProofNeeded

# What a session that is signed in by half may see of the console and of the own account.
OPEN = frozenset(
    {"admin:login", "admin:logout", "login", "logout", "password_reset", "admin_password_reset"}
    | {"openid_connect_login", "openid_connect_callback"}
)
NO_FORMS = ("/api/", "/hooks/")


class SecondFactor(MiddlewareMixin):
    """Comes after `orders.identity.middleware.Identity` and allauth's own, which lets its functions find the request."""

    def process_request(self, request: Any) -> None:
        """The account, once it is asked for, has no rights while its session awaits a second factor."""
        found = request.user
        request.user = SimpleLazyObject(lambda: proofs.limited(request, found))

    def process_view(
        self, request: HttpRequest, view: Callable[..., HttpResponseBase], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """Every page of the console and of the own account leads to the second factor first. A repeated form brings its proof."""
        match = request.resolver_match
        guarded = match is not None and match.namespace != "factors" and match.view_name not in OPEN and _is_personal(request.path_info)
        if guarded and SESSION_KEY in request.session and getattr(request.user, "awaits_second_factor", False):
            wanted = request.get_full_path() if request.method == "GET" else ""
            return HttpResponseRedirect(f"{reverse('factors:ask')}?{urlencode({'next': wanted})}")
        if request.method == "POST" and not request.path_info.startswith(NO_FORMS) and request.POST.keys() & asking_again.ASKED:
            return asking_again.answered(request)
        return None

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Ask again who it is, and keep what was typed. Nothing was changed."""
        return asking_again.page(request) if isinstance(exception, ProofNeeded) else None


def _is_personal(path: str) -> bool:
    return path.startswith(("/admin/", "/accounts/"))
