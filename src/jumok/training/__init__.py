"""Training: the plan, the loop, and what is learned.

Whatever trains imports this package, from a terminal or from Python. Its first import, before torch is loaded, decides
how threads wait on a busy machine.
"""

from jumok.processors import waiting_threads

waiting_threads()
