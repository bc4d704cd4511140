"""`python -m oscine`, and the entry point of the installed command.

`python -m` looks for modules in the current folder first, where a recording may come with a file
json.py. So this file, `oscine/__init__.py` and `oscine/module_path.py` import nothing else that
Python has not loaded before.
"""

import os
import sys

INTERRUPTED = 130  # exit code after Ctrl-C


def leave_out_current_folder() -> None:
    """Take the current folder off the paths where modules and programs are looked for.

    `python -m` puts it there, and so does an empty or relative entry of PYTHONPATH or PATH, as a
    stray colon makes one.
    """
    from oscine.module_path import without_current_folder

    sys.path[:] = without_current_folder()
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
