"""The marker that a page listens for events."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Audience(models.Model):
    """One row. While `until` is in the future, a listener exists and events are announced (`insight.live_events`). That slows commits."""

    until = models.DateTimeField(_("until"))

    class Meta:
        verbose_name = _("audience")
        verbose_name_plural = _("audiences")
        default_permissions = ()

    def __str__(self) -> str:
        return f"until {self.until:%Y-%m-%d %H:%M:%S}"
