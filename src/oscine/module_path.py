"""The module search path without the current folder, whose contents are not trusted.

oscine.__main__ uses this first, so it imports only modules that Python has already loaded.
"""

import os
import sys


def without_current_folder() -> "list[str]":
    """sys.path without the current folder, which `python -m` and `python -c` add, and without
    relative entries, such as that of a stray colon in PYTHONPATH.

    Entries after the standard library, those of installed packages, are kept.
    """
    try:
        here = os.getcwd()
    except OSError:  # it has been deleted
        here = ""
    library = os.path.dirname(os.__file__)
    end = sys.path.index(library) if library in sys.path else 0
    before = [path for path in sys.path[:end] if os.path.isabs(path) and path != here]
    return before + sys.path[end:]
