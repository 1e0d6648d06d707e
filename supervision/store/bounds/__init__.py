"""Bounds of claims: where the searches for waiting rows begin, how many steps may be in flight, and which can go nowhere now."""
