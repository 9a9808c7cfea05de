"""Imported rooms: trees of captures become recordings in a store."""
