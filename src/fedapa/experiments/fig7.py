"""``fedapa reproduce fig7``: accuracy over rounds with nets that differ, the paper's second curves.

Expected shape: as fig6, with Tiny-, Middle- and LargeConvNet4 by the rooms' train windows; weights
are then averaged among equal nets only. Its runs are Table 1's.
"""

from fedapa.experiments.experiment import MODEL, Experiment
from fedapa.experiments.fig6 import curves

__all__ = ["FIG7"]

FIG7 = Experiment(
    "fig7", "Figure 7: convergence with nets that differ", curves, (MODEL,), fixed=True
)
