"""Engines: ways for a server to reach its rooms."""
