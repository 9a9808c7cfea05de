"""Stores: files of recordings, what fills them, and the windows that are cut from them."""
