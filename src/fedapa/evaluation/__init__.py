"""Scores and the records that rounds leave behind."""
