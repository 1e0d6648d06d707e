"""An order and its four steps. The index serves a search for overdue steps, as a supervisor would do."""

from __future__ import annotations

from django.db import models


class State(models.IntegerChoices):
    """The state of an order or a step."""

    PENDING = 0
    PROCESSING = 1
    PROCESSED = 2


class Order(models.Model):
    """One order."""

    state = models.SmallIntegerField(choices=State.choices, default=State.PENDING)
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "usual"

    def __str__(self) -> str:
        return f"order {self.pk}"


class Step(models.Model):
    """One step of an order."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    position = models.SmallIntegerField()
    state = models.SmallIntegerField(choices=State.choices, default=State.PENDING)
    locked_by = models.TextField(default="")
    complete_by = models.DateTimeField(null=True)
    result = models.JSONField(null=True)

    class Meta:
        app_label = "usual"
        constraints = [models.UniqueConstraint(name="one_row_per_step", fields=["order", "position"])]
        indexes = [models.Index(name="step_overdue", fields=["state", "complete_by"])]

    def __str__(self) -> str:
        return f"step {self.position} of order {self.order_id}"
