"""Fixtures every test may use."""

pytest_plugins = ["tests.servers", "tests.models"]
