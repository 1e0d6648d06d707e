"""Bounds of claims: where the searches for waiting rows begin, and how many steps may be in flight."""
