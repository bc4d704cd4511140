"""Comparisons with goldens, one module a model family."""
