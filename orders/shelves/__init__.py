"""The catalogue as visitors walk through it: categories, search, and pages of products."""
