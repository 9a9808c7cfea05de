"""Rooms: their windows, their normaliser and their net; nothing here leaves a room."""
