"""The project's paths: the console is not at /admin/."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("desk/", admin.site.urls), path("api/", include("supervision.api.urls"))]
