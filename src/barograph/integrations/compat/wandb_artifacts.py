"""W&B's artifacts, kept as files in the run's folder.

In:   `wandb.Artifact(name, type)` with files, folders and references; names of those that earlier runs kept.
Out:  `artifacts/NAME/vN/` in the run's folder, with a `manifest.json`; files above 1 GiB stay in their place.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from barograph.core.manifest import write_json
from barograph.core.names import folder_name
from barograph.core.record import json_text
from barograph.core.values import text
from barograph.integrations.compat.unsupported import say_once
from barograph.integrations.compat.wandb_media import WandbTable
from barograph.training.run import Run

_MOST_BYTES = 1 << 30  # of one file that is copied: a training must not wait for the copy of a large checkpoint


class WandbArtifact:
    """Files with a name and a type. `version` is known once it is logged."""

    def __init__(
        self, name: str, type: str = "", description: str | None = None, metadata: Any = None, **options: Any
    ) -> None:
        self.name, self.type, self.description = text(name), type, description
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.version, self.aliases = "v0", ["latest"]
        self._files: dict[str, Path | bytes] = {}
        self._references: dict[str, str] = {}
        self._kept: Path | None = None

    def add_file(self, local_path: Any, name: str | None = None, **options: Any) -> None:
        """A file; it is copied when the artifact is logged."""
        self._files[name or Path(local_path).name] = Path(local_path)

    def add_dir(self, local_path: Any, name: str | None = None, **options: Any) -> None:
        """A folder with all that is in it."""
        base = Path(local_path)
        for path in sorted(base.rglob("*")):
            if path.is_file():
                inside = path.relative_to(base).as_posix()
                self._files[f"{name}/{inside}" if name else inside] = path

    def add_reference(self, uri: Any, name: str | None = None, **options: Any) -> None:
        """An address that is only noted."""
        self._references[name or Path(str(uri)).name] = str(uri)

    def add(self, obj: Any, name: str, **options: Any) -> None:
        """A table, or another of W&B's types."""
        if isinstance(obj, WandbTable):
            held = {"columns": [text(column) for column in obj.columns], "data": [[*map(text, r)] for r in obj.data]}
            self._files[f"{name}.table.json"] = json_text(held).encode()
        elif isinstance(getattr(obj, "data", None), (str, os.PathLike)):
            self.add_file(obj.data)
        else:
            say_once(f"a {type(obj).__name__} in an artifact is not kept")

    @contextlib.contextmanager
    def new_file(self, name: str, mode: str = "w", encoding: str | None = None) -> Any:
        """A file to write."""
        import io

        stream: Any = io.BytesIO() if "b" in mode else io.StringIO()
        yield stream
        held = stream.getvalue()
        self._files[name] = held if isinstance(held, bytes) else held.encode(encoding or "utf-8")

    def wait(self, timeout: Any = None) -> WandbArtifact:
        """It is kept when `log_artifact` returns."""
        return self

    def save(self, *rest: Any, **options: Any) -> None:
        """The same."""

    def download(self, root: Any = None, **options: Any) -> str:
        """The folder with its files."""
        if self._kept is None:
            return str(root or ".")
        if root is not None:
            shutil.copytree(self._kept, root, dirs_exist_ok=True)
        return str(root or self._kept)

    def file(self, root: Any = None) -> str:
        """Its only file."""
        return next((str(path) for path in Path(self.download(root)).iterdir() if path.name != "manifest.json"), "")

    def get_path(self, name: str) -> WandbArtifact:
        """W&B's entries; here the artifact itself."""
        return self

    def keep(self, run: Run, aliases: Any = None) -> None:
        """Copy what belongs to it."""
        home = run.dir / "artifacts" / folder_name(self.name)
        number = 0
        while (home / f"v{number}").exists():
            number += 1
        self._kept, self.version = home / f"v{number}", f"v{number}"
        self._kept.mkdir(parents=True)
        self.aliases = list(dict.fromkeys(["latest", *([aliases] if isinstance(aliases, str) else aliases or ())]))
        for name, source in self._files.items():
            path = self._kept / Path(name.lstrip("/").replace("..", "_"))
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, bytes):
                path.write_bytes(source)
            elif source.stat().st_size > _MOST_BYTES:
                self._references[name] = str(source.absolute())
                say_once(f"{source} is larger than 1 GiB: the artifact notes its place instead of copying it")
            else:
                shutil.copyfile(source, path)
        about = {"name": self.name, "type": self.type, "description": self.description, "aliases": self.aliases}
        kept = about | {"metadata": json.loads(json.dumps(self.metadata, default=text)), "references": self._references}
        write_json(self._kept / "manifest.json", kept)
        run.log_message(run.about.step, f"artifact {self.name}:{self.version} is kept in {self._kept}")


def find_artifact(run: Run, name: str) -> WandbArtifact | None:
    """The newest artifact of that name (`NAME`, `NAME:v3`, `NAME:latest`) that a run of the project kept."""
    plain, _, which = name.rpartition("/")[2].partition(":")
    found: list[tuple[float, Path]] = []
    for path in run.dir.parent.glob(f"*/artifacts/{folder_name(plain)}/v*"):
        held = _about(path)
        if which in ("", "latest", path.name) or which in held.get("aliases", ()):
            found.append((path.stat().st_mtime, path))
    if not found:
        return None
    path = max(found)[1]
    held = _about(path)
    artifact = WandbArtifact(plain, held.get("type", ""), held.get("description"), held.get("metadata"))
    artifact._kept, artifact.version, artifact.aliases = path, path.name, held.get("aliases", [])
    return artifact


def _about(path: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        held = json.loads((path / "manifest.json").read_bytes())
        return held if isinstance(held, dict) else {}
    return {}
