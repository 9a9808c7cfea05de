"""Rooms on other machines: certificates and keys, the server, a room, what stands between them."""
