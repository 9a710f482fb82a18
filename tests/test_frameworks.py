"""What the guide says of frameworks is so: the versions are those that the tests install, every row has its program."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import barograph

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "guides" / "frameworks.md").read_text()
ROWS = dict(re.findall(r"\| `([\w-]+)` (\d[\w.]*) \|$", GUIDE, re.M))
ADAPTERS = {"huggingface": "transformers", "accelerate": "accelerate", "lightning": "lightning", "keras": "keras"}


def test_the_versions_of_the_guide_are_those_that_the_tests_install() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {}
    for each in map(Requirement, project["optional-dependencies"]["test"]):
        for version in each.specifier:
            if version.operator == "==":
                wanted[each.name] = version.version
    assert len(ROWS) >= 8 and {name: wanted.get(name) for name in ROWS} == ROWS


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_version_that_is_here_is_the_guides(name: str) -> None:
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    assert found == ROWS[name], f"docs/guides/frameworks.md and pyproject.toml say {ROWS[name]}"


@pytest.mark.parametrize("module, library", ADAPTERS.items())
def test_a_framework_that_is_missing_is_one_clear_sentence(module: str, library: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; import barograph.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert (
        last.startswith(f"ImportError: barograph.integrations.{module} needs") and f"pip install -U {library}" in last
    )


OLD = """
import sys, types
library = sys.argv[1]
for name in (library, library + ".tracking", library + ".integrations", library + ".pytorch", library + ".callbacks"):
    module = sys.modules[name] = types.ModuleType(name)
    module.__version__, module.__path__ = "0.1.0", []
import importlib
importlib.import_module("barograph.integrations." + sys.argv[2])
"""


@pytest.mark.parametrize("module, library", ADAPTERS.items())
def test_a_framework_that_is_too_old_is_one_clear_sentence(module: str, library: str) -> None:
    done = subprocess.run([sys.executable, "-c", OLD, library, module], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: barograph.integrations.{module} needs") and "pip install -U" in last
    assert "During handling" not in done.stderr


def test_an_accelerate_that_registers_no_names_takes_the_object_and_says_so(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    program = (
        "import sys; from accelerate import Accelerator, tracking; del tracking.register_tracker_class\n"
        "from barograph.integrations.accelerate import BarographTracker\n"
        "accelerator = Accelerator(cpu=True, log_with=BarographTracker('p', dir=sys.argv[1]))\n"
        "accelerator.init_trackers('p'); accelerator.log({'loss': 1.0}, step=0); accelerator.end_training()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("takes trackers of others as objects alone") == 1
    (folder,) = (tmp_path / "p").glob("p_*")
    assert barograph.StoredRun(folder).series("loss").step.tolist() == [0]


def test_stand_ins_load_no_framework() -> None:
    names = ("torch", "numpy", "wandb", "tensorboard", "transformers", "accelerate", "lightning", "keras", "jax")
    program = (
        "import sys, barograph.compat.wandb, barograph.compat.tensorboard\n"
        "import barograph.integrations.torchtitan, barograph.integrations.deepspeed\n"
        f"print([name for name in {names} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
