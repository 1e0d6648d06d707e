"""The page where the owner of an account downloads everything that is held about it, and closes it. Both take the password."""

from __future__ import annotations

import tempfile
from typing import Any

from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required
from django.http import FileResponse, HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from orders.accounts.forms import OwnPasswordForm
from orders.privacy import erasing, exporting, people
from orders.privacy.people import Person
from supervision.errors import Refused
from supervision.operations.audit_log import Exempt

SPOOLED = 2_000_000  # bytes that are kept in memory; a longer file goes to the disk


def zipped(person: Person) -> HttpResponseBase:
    """The export of this person, as a download."""
    out = tempfile.SpooledTemporaryFile(SPOOLED)  # noqa: SIM115 - the response closes it
    exporting.write(person, out)
    out.seek(0)
    return FileResponse(out, as_attachment=True, filename="data.zip", content_type="application/zip")


@login_required
@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
def own_data(request: HttpRequest) -> HttpResponseBase:
    """Download the data, or close the account; a wrong password changes nothing."""
    account: Any = request.user
    form = OwnPasswordForm(request.POST or None, account=account)
    if request.method == "POST" and form.is_valid():
        try:
            person = people.of_account(account)
            if "close" not in request.POST:
                return zipped(person)
            erasing.begin(person, by=Exempt(account), reason="asked for by the owner", when_ended=True)
        except Refused as refusal:
            form.add_error(None, str(refusal))
        else:
            logout(request)
            return render(request, "orders/account/closed.html")
    facts = {"form": form, "waiting": _waiting(account)}
    return render(request, "orders/account/data.html", facts, status=400 if form.errors else 200)


def _waiting(account: Any) -> str:
    """What is said of orders that are on their way."""
    try:
        count = erasing.plan(people.of_account(account)).waiting
    except Refused:
        return ""
    return _("Your orders that are on their way: %(n)d. They still reach you, and are erased after that.") % {"n": count} if count else ""
