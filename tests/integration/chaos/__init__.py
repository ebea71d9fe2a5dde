"""Small storms on real databases."""
