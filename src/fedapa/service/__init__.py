"""A trained room counts people: packets in, counts out; nothing here needs torch."""
