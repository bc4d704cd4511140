"""Where modules and packages are looked for: not in the current folder, which may be anybody's.

oscine.__main__ needs this first of all, so it imports nothing that Python has not loaded before.
"""

import os
import sys


def without_current_folder() -> "list[str]":
    """sys.path without the current folder, which `python -m` and `python -c` put there, and without
    relative entries, as a stray colon in PYTHONPATH makes one.

    What is installed follows the standard library and stays.
    """
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = ""
    library = os.path.dirname(os.__file__)
    end = sys.path.index(library) if library in sys.path else 0
    before = [path for path in sys.path[:end] if os.path.isabs(path) and path != here]
    return before + sys.path[end:]
