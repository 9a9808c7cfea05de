"""Figures of results, of runs and of data; ``style`` says how all of them look."""
