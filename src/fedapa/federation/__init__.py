"""Rounds: rooms and a server exchange payloads, and what they leave behind survives a crash."""
