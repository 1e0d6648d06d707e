"""Expense claims: checked, booked, approved by a manager, paid."""
