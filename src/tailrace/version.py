"""The package's version, below every layer, so that each may name it."""

__version__ = "0.1.0"
