"""Attacks: what a curious stranger can learn from what rooms send, measured."""
