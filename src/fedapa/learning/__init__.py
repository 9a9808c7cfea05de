"""How one room learns, and the mathematics of prototypes."""
