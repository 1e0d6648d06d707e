"""The shop's pages."""

from __future__ import annotations

from django.urls import path

from orders import checkout, delivery, live_views, views
from orders.accounts import address_pages, history
from orders.accounts import pages as accounts
from orders.documents import pages as document_pages
from orders.identity import token_pages
from orders.parcels.hooks import carrier as carrier_hook
from orders.payments import hooks, pages
from orders.privacy import own_pages
from orders.returns import pages as return_pages
from orders.shelves import pages as shelves

app_name = "orders"

urlpatterns = [
    path("", shelves.catalogue, name="catalogue"),
    path("categories/<slug:slug>/", shelves.catalogue, name="category"),
    path("products/<slug:sku>/", views.product, name="product"),
    path("cart/", views.cart, name="cart"),
    path("cart/<slug:sku>/add/", views.add_to_cart, name="add-to-cart"),
    path("cart/<slug:sku>/change/", views.change_cart, name="change-cart"),
    path("checkout/", checkout.checkout, name="checkout"),
    path("delivery-estimate/", delivery.estimate, name="delivery-estimate"),
    path("orders/", history.history, name="history"),
    path("orders/<slug:public_id>/", views.order, name="order"),
    path("orders/<slug:public_id>/again/", history.reorder, name="reorder"),
    path("orders/<slug:public_id>/cancel/", views.cancel, name="cancel"),
    path("orders/<slug:public_id>/payment/", pages.pay, name="pay"),
    path("orders/<slug:public_id>/returns/", return_pages.return_goods, name="return-goods"),
    path("orders/<slug:public_id>/documents/<slug:name>/", document_pages.document, name="document"),
    path("orders/<slug:public_id>/live/", live_views.fragment, name="order-live"),
    path("orders/<slug:public_id>/stream/", live_views.stream, name="order-stream"),
    path("hooks/stripe/", hooks.stripe, name="stripe-hook"),
    path("hooks/carrier/", carrier_hook, name="carrier-hook"),
    path("accounts/", accounts.account, name="account"),
    path("accounts/signup/", accounts.sign_up, name="signup"),
    path("accounts/signup/sent/", accounts.sign_up_sent, name="signup-sent"),
    path("accounts/signup/<str:token>/", accounts.sign_up_confirm, name="signup-confirm"),
    path("accounts/email/", accounts.change_email, name="change-email"),
    path("accounts/email/<str:token>/", accounts.email_confirm, name="email-confirm"),
    path("accounts/data/", own_pages.own_data, name="own-data"),
    path("accounts/tokens/", token_pages.own_tokens, name="tokens"),
    path("accounts/tokens/<slug:key>/revoke/", token_pages.revoke_token, name="revoke-token"),
    path("accounts/addresses/", address_pages.addresses, name="addresses"),
    path("accounts/addresses/new/", address_pages.address, name="new-address"),
    path("accounts/addresses/<int:pk>/", address_pages.address, name="address"),
    path("accounts/addresses/<int:pk>/change/", address_pages.change_book, name="change-book"),
]
