"""A complete verifier made for grafted networks."""
