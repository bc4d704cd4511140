"""`python -m oscine`, and the entry point of the installed command.

`python -m` looks for modules in the current folder first, where a recording may come with a file
json.py. So this file and `oscine/__init__.py` import nothing that Python has not loaded before.
"""

import os
import sys

INTERRUPTED = 130  # the exit code of what Ctrl-C ended


def leave_out_current_folder() -> None:
    """Take the current folder off the paths where modules and programs are looked for.

    `python -m` puts it there, and so does an empty or relative entry of PYTHONPATH or PATH, as a
    stray colon makes one. What is installed follows the standard library and stays.
    """
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = ""
    library = os.path.dirname(os.__file__)
    end = sys.path.index(library) if library in sys.path else 0
    sys.path[:end] = [path for path in sys.path[:end] if os.path.isabs(path) and path != here]
    programs = [path for path in os.get_exec_path() if os.path.isabs(path)]
    os.environ["PATH"] = os.pathsep.join(programs)


def main() -> None:
    """Run the command. Raises SystemExit with its exit code."""
    try:
        leave_out_current_folder()
        from oscine.cli import main as command  # a while, in which a traceback answers no Ctrl-C

        command()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
