"""The version of the package. The module imports nothing, so builds can read it."""

__all__ = ["__version__"]

__version__ = "0.14.100"
