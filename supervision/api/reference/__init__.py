"""What the reference of the API tells besides the schema: the catalogue of problems."""
