"""Tests of the token providers."""
