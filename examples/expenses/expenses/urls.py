"""The admin, and the two pages of the claims."""

from django.contrib import admin
from django.urls import path

from claims import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("claims/", views.submit, name="submit"),
    path("claims/<str:key>/", views.show, name="claim"),
    path("claims/<str:key>/decision/", views.decide, name="decide"),
]
