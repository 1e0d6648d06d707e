"""The books and the bank of the example: one row for each thing that was done, under the key of the step that did it."""

from django.db import models


class Entry(models.Model):
    """What was booked or paid. key: the step's idempotency key, so that a repetition finds the row."""

    key = models.TextField(unique=True)
    kind = models.TextField()
    employee = models.TextField()
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    taken_back = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.amount} for {self.employee}"
