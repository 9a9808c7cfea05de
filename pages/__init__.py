"""What makes this repository's own pages: figures and tables of docs/; not in the wheel."""
