"""Certificates of robustness, and a checker of them that uses NumPy and SciPy only and nothing of the verifier.

docs/certificates.md says what is proven and why. To read the checker, begin with `check.py` and follow its imports.
"""
