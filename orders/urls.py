"""The shop's pages."""

from __future__ import annotations

from django.urls import path

from orders import checkout, delivery, live_views, views

app_name = "orders"

urlpatterns = [
    path("", views.catalogue, name="catalogue"),
    path("products/<slug:sku>/", views.product, name="product"),
    path("cart/", views.cart, name="cart"),
    path("cart/<slug:sku>/add/", views.add_to_cart, name="add-to-cart"),
    path("cart/<slug:sku>/change/", views.change_cart, name="change-cart"),
    path("checkout/", checkout.checkout, name="checkout"),
    path("delivery-estimate/", delivery.estimate, name="delivery-estimate"),
    path("orders/", views.history, name="history"),
    path("orders/<slug:public_id>/", views.order, name="order"),
    path("orders/<slug:public_id>/cancel/", views.cancel, name="cancel"),
    path("orders/<slug:public_id>/live/", live_views.fragment, name="order-live"),
    path("orders/<slug:public_id>/stream/", live_views.stream, name="order-stream"),
    path("accounts/signup/", views.sign_up, name="signup"),
]
