"""Addresses below /admin/: the console's look, and its policy of what a page may load, are theirs too."""

from __future__ import annotations

from django.urls import path

from orders.factors import openid, own_pages, pages
from sasproject.factors import OIDC_PROVIDER

app_name = "factors"

urlpatterns = [
    path("", pages.ask, name="ask"),
    path("own/", own_pages.own, name="own"),
    path("enrol/", own_pages.enrol, name="enrol"),
    path("passkey/options/", pages.passkey_options, name="passkey-options"),
    path("passkey/", pages.passkey_sign_in, name="passkey"),
]
# allauth finds these two by their names, so they stand in no namespace.
provider_urls = [
    path("login/", openid.begin, {"provider_id": OIDC_PROVIDER}, name="openid_connect_login"),
    path("login/callback/", openid.finish, {"provider_id": OIDC_PROVIDER}, name="openid_connect_callback"),
]
