"""What could not be read in this process, for who says so in the end.

In:   a file, and a sentence about it.
Out:  `found`, by file.
"""

from __future__ import annotations

from pathlib import Path

found: dict[Path, str] = {}
_MOST = 1000


class Problems(dict[Path, str]):
    """Sentences about one run's files, which are in `found` too."""

    def __setitem__(self, path: Path, sentence: str) -> None:
        super().__setitem__(path, sentence)
        if len(found) < _MOST:
            found[path] = sentence

    def forget(self, path: Path) -> None:
        """It can be read after all."""
        found.pop(path, None)
        self.pop(path, None)
