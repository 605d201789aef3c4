"""Vectors, on faiss."""
