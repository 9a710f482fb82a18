"""The command `barograph`.

In:   words typed by a person or a script.
Out:  text, or JSON with --json; exit code 0, 1 for a wrong name or file, 2 for a wrong argument.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from barograph import __version__
from barograph.cli import asking, attending, filing, fleet, judging, logs, looking, trying, watching
from barograph.cli.commands import Commands
from barograph.core import damage, providers
from barograph.core.options import PASSWORD_VARIABLE
from barograph.store.clickhouse.address import has_password, is_address

_BEFORE_RUNS = frozenset({"demo", "import", "mcp", "metrics", "pull", "run"})  # make the folder, or wait for it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    if any(is_address(word) and has_password(word) for word in vars(options).values()):
        return _sorry(f"every user of this machine can read a command's arguments: set {PASSWORD_VARIABLE} instead")
    given = getattr(options, "dir", None)
    if given and options.command not in _BEFORE_RUNS and not is_address(given) and not os.path.isdir(given):
        return _sorry(f"there is no folder of runs {given}; name one with --dir")
    damage.found.clear()
    providers.provide({"the end of a command by a signal": "barograph.importing.temporary:end_on_signals"})
    try:
        code = int(options.function(options) or 0)
        if options.command != "sql":  # which says so itself
            for path, sentence in damage.found.items():
                print(f"barograph: {path.parent}: {sentence}", file=sys.stderr)
        return code
    except BrokenPipeError:  # the reader of a pipe has gone: `barograph ls | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except ModuleNotFoundError as error:
        if (error.name or "barograph").startswith("barograph"):
            raise
        return _sorry(f"this command needs {error.name}, which is not installed: pip install barograph {error.name}")
    except KeyError as error:
        return _sorry(str(error.args[0]) if error.args else "no such name")
    except ValueError as error:
        return _sorry(str(error))
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _sorry(f"{error.strerror or error}{where}")


def _sorry(sentence: str) -> int:
    print(f"barograph: {sentence}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barograph",
        usage="barograph [-h] [--version] COMMAND ...",
        description="Telemetry for training language models.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"barograph {__version__}")
    commands = Commands(parser)
    for group in (looking, watching, attending, judging, asking, filing, logs, fleet, trying):
        group.add(commands)
    parser.epilog = f"{commands.listing()}\n\n`barograph COMMAND --help` explains a command and its options."
    return parser
