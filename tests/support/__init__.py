"""Helpers and fixtures that tests of several folders share; no tests."""
