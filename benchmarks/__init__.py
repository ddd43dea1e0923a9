"""Measurements against other engines and through the whole fleet; nothing of the product imports this."""
