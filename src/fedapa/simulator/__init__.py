"""The simulator: rooms with people in them become captures as a receiver would write them.

A ``Scene`` (``recording``) is a room with walls and furniture (``room``), people who move in it
(``people``), a radio (``channel``, ``delays``) and a receiver with its faults (``receiver``);
``settings`` checks what they may be. ``record`` makes one recording of it: the same ``Capture``
that the readers of files give, marked synthetic. The equations are in docs/simulator.md.
"""
