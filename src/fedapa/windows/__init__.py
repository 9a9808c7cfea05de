"""From recordings to labelled windows: the store, cutting, splitting."""
