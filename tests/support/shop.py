"""A whole running shop for a test; the chaos run uses the same."""

from __future__ import annotations

from chaos.look import ADDRESS, order, until
from chaos.shop import ROLES, WORKERS, Shop, open_shop, role_of, scratch_database

__all__ = ["ADDRESS", "ROLES", "WORKERS", "Shop", "open_shop", "order", "role_of", "scratch_database", "until"]
