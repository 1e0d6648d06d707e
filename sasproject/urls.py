"""Which app answers which path. Each app lists its own pages."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.views import LoginView, PasswordChangeDoneView
from django.urls import include, path

from orders.factors.urls import provider_urls
from orders.identity import pages
from orders.identity.forms import ShopSignInForm

# This template has a name of its own, because the admin uses Django's default name for its own page.
PASSWORD_CHANGED = PasswordChangeDoneView.as_view(template_name="orders/password_change_done.html")

admin.autodiscover()  # the console's pages: `console_app` leaves them to the URLs

urlpatterns = [
    path("", include("orders.api.probes")),  # healthz, readyz, metrics
    path("api/", include("orders.api.urls")),
    path("accounts/login/", LoginView.as_view(authentication_form=ShopSignInForm), name="login"),
    path("accounts/password_change/", pages.Change.as_view(), name="password_change"),
    path("accounts/password_change/done/", PASSWORD_CHANGED, name="password_change_done"),
    path("accounts/password_reset/", pages.Reset.as_view(), name="password_reset"),
    path("accounts/password_reset/", pages.Reset.as_view(), name="admin_password_reset"),  # the console's sign-in links to it
    path("accounts/reset/<uidb64>/<token>/", pages.ResetConfirm.as_view(), name="password_reset_confirm"),
    path("accounts/", include("django.contrib.auth.urls")),
    path("i18n/", include("django.conf.urls.i18n")),
    path("admin/second-factor/", include("orders.factors.urls")),
    path("admin/oidc/", include(provider_urls)),
    path("admin/", admin.site.urls),
    path("", include("orders.urls")),  # the shop
]

# Errors outside any view: the API answers with a problem document, the site with a page.
handler400 = "orders.api.errors.bad_request"
handler403 = "orders.api.errors.permission_denied"
handler404 = "orders.api.errors.page_not_found"
handler500 = "orders.api.errors.server_error"
