"""The nets: an encoder that makes embeddings and a classifier that reads them."""
