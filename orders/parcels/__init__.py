"""Parcels after their booking: the carrier's webhooks, the looks where none came, and what customers and operators see of them."""
