"""What the paper reports, one module per table or figure, and the presets of runs."""
