"""Tables: what a table is, how it is written, and those of experiments and of captures."""
