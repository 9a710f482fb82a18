"""Who and where: what launchers, mounts, repositories and control groups tell, and what they must not tell."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
from patience import patient

from barograph.core import code, hardware, place

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0",
}  # fmt: skip
SLURM = {
    "SLURM_PROCID": "5", "SLURM_NTASKS": "16", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0",
}  # fmt: skip


# -- ranks


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (0, 1, 0)),
        (TORCHRUN, (3, 8, 3)),
        (SLURM, (5, 16, 1)),
        (SLURM | TORCHRUN, (3, 8, 3)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, (2, 4, 0)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, (1, 2, 1)),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, (1, 2, 1)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1, 0)),
        # no sense in these
        ({"RANK": "8", "WORLD_SIZE": "8"}, (0, 1, 0)),
        ({"RANK": "-1", "WORLD_SIZE": "8"}, (0, 1, 0)),
        ({"RANK": "two", "WORLD_SIZE": "8"}, (0, 1, 0)),
        ({"RANK": "3"}, (0, 1, 0)),
        ({"RANK": "9" * 50, "WORLD_SIZE": "9" * 51}, (0, 1, 0)),
        ({"RANK": "٣", "WORLD_SIZE": "8"}, (0, 1, 0)),
        ({"RANK": "", "WORLD_SIZE": ""} | SLURM, (5, 16, 1)),
        # a batch script: the job's number of tasks, but one process
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_JOB_ID": "77"}, (0, 1, 0)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_STEPID": "0"}, (0, 16, 0)),
        # mpirun inside a Slurm job
        (SLURM | {"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 4, 2)),
    ],
)
def test_ranks_come_from_the_launchers_variables(environ: dict[str, str], expected: tuple[int, int, int]) -> None:
    assert place.rank(environ) == expected


def _distributed(initialized: bool, rank: int = 6) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: initialized,
        get_rank=lambda: rank,
        get_world_size=lambda: 9,
    )


def test_an_initialised_torch_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed", _distributed(True))
    assert place.rank(TORCHRUN) == (6, 9, 3)
    assert place.rank({}) == (6, 9, 6)
    monkeypatch.setitem(sys.modules, "torch.distributed", _distributed(False))
    assert place.rank(TORCHRUN) == (3, 8, 3)
    monkeypatch.setitem(sys.modules, "torch.distributed", types.SimpleNamespace())
    assert place.rank(TORCHRUN) == (3, 8, 3)


def test_a_process_alone_has_no_launch() -> None:
    assert place.launch_id({}) is None
    assert place.launch_id(TORCHRUN | {"WORLD_SIZE": "1", "RANK": "0"}) is None
    assert place.launch_id({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}) is None


@pytest.mark.parametrize(
    "environ",
    [
        TORCHRUN,
        TORCHRUN | {"LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "node0", "TORCHELASTIC_RUN_ID": "abc"},
        SLURM,
        {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "PMIX_NAMESPACE": "prterun-1@1"},
        {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
        {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "node0", "MASTER_PORT": "1"},
        {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "8"},
    ],
)
def test_the_ranks_of_one_launch_share_its_identity(environ: dict[str, str]) -> None:
    name = next(name for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID") if name in environ)
    identities = {place.launch_id(environ | {name: str(rank), "LOCAL_RANK": str(rank)}) for rank in range(8)}
    assert len(identities) == 1 and None not in identities


@pytest.mark.parametrize(
    ("environ", "change"),
    [
        (TORCHRUN, {"TORCHELASTIC_RESTART_COUNT": "1"}),
        (TORCHRUN, {"TORCHELASTIC_RUN_ID": "abc"}),
        (TORCHRUN, {"MASTER_PORT": "29501"}),
        (TORCHRUN | SLURM | {"LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "node0"}, {"SLURM_STEP_ID": "1"}),
        (SLURM, {"SLURM_STEP_ID": "1"}),
        (SLURM, {"SLURM_JOB_ID": "78"}),
        (SLURM, {"SLURM_RESTART_COUNT": "1"}),
    ],
)
def test_another_launch_has_another_identity(environ: dict[str, str], change: dict[str, str]) -> None:
    assert place.launch_id(environ) != place.launch_id(environ | change)


def test_an_address_alone_is_marked_as_weak_and_nothing_at_all_is_none() -> None:
    two_hosts = TORCHRUN | {"LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "node0"}
    assert str(place.launch_id(two_hosts)).startswith("address-")
    assert place.launch_id({"RANK": "1", "WORLD_SIZE": "2"}) is None


_ONE_LAUNCH = """
import os, subprocess, sys
rank = "from barograph.core import place; print(place.launch_id())"
environ = {k: v for k, v in os.environ.items()}
for number in range(2):
    environ.update(RANK=str(number), WORLD_SIZE="2", LOCAL_RANK=str(number), LOCAL_WORLD_SIZE="2",
                   MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", TORCHELASTIC_RUN_ID="none",
                   TORCHELASTIC_RESTART_COUNT="0")
    command = [sys.executable, "-c", rank]
    if number:  # a rank behind a shell, as with `torchrun --no-python run.sh`
        command = ["/bin/sh", "-c", '"$0" -c "$1"; true', sys.executable, rank]
    subprocess.run(command, env=environ, check=True)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_two_launches_in_a_row_differ_though_their_variables_are_the_same() -> None:
    printed = [
        subprocess.run([sys.executable, "-c", _ONE_LAUNCH], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    first, second = (set(identities) for identities in printed)
    assert len(first) == len(second) == 1 and first != second


# -- file systems

MOUNTS = r"""
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:50 / /data rw shared:1 - nfs4 server:/data rw,vers=4.2
31 30 0:51 / /data/scratch rw - xfs /dev/vdb rw
32 27 0:52 / /mnt/with\040blank rw - lustre a@tcp:/b rw
33 27 0:53 / /mnt/bucket rw - fuse.s3fs s3fs rw
34 27 0:54 / /mnt/layers rw - fuse.fuse-overlayfs x rw
35 27 0:55 / /mnt/covered rw - ext4 /dev/vdc rw
36 27 0:56 / /mnt/covered rw - cifs //server/share rw
37 27 0:57 / /mnt/odd rw - somethingfs x rw
not a mount line
38 27
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data", True),
        ("/data/runs/not/there/yet", True),
        ("/data/scratch/runs", False),
        ("/database", False),
        ("/mnt/with blank/x", True),
        ("/mnt/bucket/x", True),
        ("/mnt/layers/x", False),
        ("/mnt/covered/x", True),
        ("/mnt/odd/x", False),
        ("/home/me", False),
        ("/", False),
        ("/data/scratch/../x", True),
    ],
)
def test_the_longest_mount_says_whether_a_path_is_on_the_network(path: str, expected: bool) -> None:
    assert place.is_network_filesystem(path, MOUNTS) is expected


def test_a_link_to_a_network_folder_counts(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/data/runs")
    assert place.is_network_filesystem(tmp_path / "link" / "run", MOUNTS)


def test_an_unknown_file_system_counts_as_local(tmp_path: Path) -> None:
    assert place.is_network_filesystem(tmp_path, "") is False
    assert place.is_network_filesystem("a\0b", MOUNTS) is False
    assert isinstance(place.is_network_filesystem(tmp_path), bool)


# -- code


def _git(folder: Path, *arguments: str) -> str:
    name = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    _git(tmp_path, "init", "-q", "-b", "trunk")
    (tmp_path / "train.py").write_text("lr = 1\n")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_a_clean_repository_has_commit_and_branch(repository: Path) -> None:
    (repository / "runs").mkdir()
    (repository / "runs" / "untracked").write_text("x")
    commit = _git(repository, "rev-parse", "HEAD")
    assert code.git_state(repository / "runs") == {"commit": commit, "branch": "trunk", "dirty": False}


def test_changes_that_are_not_committed_are_kept_as_a_diff(repository: Path) -> None:
    (repository / "train.py").write_bytes(b"lr = 2 # \xff\n")
    state = code.git_state(repository)
    assert state["dirty"] is True and "-lr = 1\n+lr = 2" in state["diff"] and "diff_truncated" not in state


def test_a_staged_change_counts_and_a_detached_head_has_no_branch(repository: Path) -> None:
    _git(repository, "checkout", "-q", "--detach")
    (repository / "train.py").write_text("lr = 3\n")
    _git(repository, "add", ".")
    state = code.git_state(repository)
    assert state["dirty"] is True and "+lr = 3" in state["diff"] and "branch" not in state


def test_a_huge_diff_is_cut(repository: Path) -> None:
    (repository / "train.py").write_text("x = 1\n" * 500_000)
    state = code.git_state(repository)
    assert len(state["diff"]) == code.MOST_DIFF_BYTES and state["diff_truncated"] is True


def test_no_repository_no_commit_or_no_git_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert code.git_state(tmp_path) == {}
    assert code.git_state(tmp_path / "missing") == {}
    _git(tmp_path, "init", "-q")
    assert code.git_state(tmp_path) == {}
    monkeypatch.setenv("PATH", "")
    assert code.git_state(tmp_path) == {}


def test_programs_that_a_repository_names_are_not_run(repository: Path) -> None:
    trap, sprung = repository.parent / f"{repository.name}-trap", repository.parent / f"{repository.name}-sprung"
    trap.write_text(f"#!/bin/sh\ntouch {sprung}\n")
    trap.chmod(0o755)
    for setting in ("core.fsmonitor", "diff.external", "diff.t.textconv"):
        _git(repository, "config", setting, str(trap))
    (repository / ".gitattributes").write_text("*.py diff=t\n")
    (repository / "train.py").write_text("lr = 2\n")
    assert code.git_state(repository)["dirty"] is True
    assert not sprung.exists()


def test_a_git_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(code, "COMMAND_SECONDS", 0.2)
    began = time.monotonic()
    assert code.git_state(tmp_path) == {}
    assert time.monotonic() - began < patient(5)


def test_packages_are_sorted_and_hold_what_is_installed() -> None:
    found = code.packages()
    assert found["msgspec"] and found["pytest"] == pytest.__version__
    assert list(found) == sorted(found, key=str.lower)


# -- hardware


def test_this_machine_has_cores_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    found = hardware.hardware()
    assert found["cpu"]["cores"] == os.cpu_count()
    assert found["memory_bytes"] > 1 << 27
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "torch.cuda", None)
    assert "gpus" not in hardware.hardware()


def _write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


@pytest.mark.parametrize(
    ("files", "own", "expected"),
    [
        (
            {"cpu.max": "max 100000", "memory.max": "max"},
            "0::/",
            {},
        ),
        (
            {
                "a/cpu.max": "400000 100000",
                "a/memory.max": "1000",
                "a/b/cpu.max": "150000 100000",
                "a/b/memory.max": "max",
            },
            "0::/a/b\n",
            {"cpus": 1.5, "memory_bytes": 1000},
        ),
        (  # in a container the group's own path is not there: the visible root counts
            {"cpu.max": "200000 100000", "memory.max": "5000"},
            "0::/docker/123\n",
            {"cpus": 2.0, "memory_bytes": 5000},
        ),
        (
            {
                "cpu/j/cpu.cfs_quota_us": "250000",
                "cpu/j/cpu.cfs_period_us": "100000",
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "memory/j/memory.limit_in_bytes": "4096",
            },
            "4:memory:/j\n3:cpu,cpuacct:/j\n1:name=systemd:/\n",
            {"cpus": 2.5, "memory_bytes": 4096},
        ),
        ({"memory/memory.limit_in_bytes": "9223372036854771712"}, "4:memory:/\n", {}),
        ({"cpu.max": "odd", "memory.max": ""}, "0::/../x\nnonsense\n", {}),
    ],
)
def test_the_least_limit_of_the_control_groups_counts(
    tmp_path: Path, files: dict[str, str], own: str, expected: dict[str, float]
) -> None:
    assert hardware.cgroup_limits(_write(tmp_path, files), own) == expected


NVIDIA = """\
0, GPU-aaaa, NVIDIA H100 80GB HBM3, 81559, 550.54.15
1, GPU-bbbb, NVIDIA H100 80GB HBM3, 81559, 550.54.15
2, GPU-cccc, NVIDIA GH200, [N/A], 550.54.15
NVIDIA-SMI has failed
"""


@pytest.mark.parametrize(
    ("visible", "uuids"),
    [
        (None, ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"]),
        ("", []),
        ("-1", []),
        ("1", ["GPU-bbbb"]),
        ("0, 2", ["GPU-aaaa", "GPU-cccc"]),
        ("GPU-bb", ["GPU-bbbb"]),
    ],
)
def test_only_visible_gpus_are_listed(visible: str | None, uuids: list[str]) -> None:
    assert [gpu["uuid"] for gpu in hardware.parse_nvidia(NVIDIA, visible)] == uuids


def test_a_gpu_has_its_name_memory_and_driver_as_far_as_told() -> None:
    first, _, third = hardware.parse_nvidia(NVIDIA, None)
    assert first == {
        "name": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-aaaa",
        "driver": "550.54.15",
        "memory_bytes": 81559 * 1_048_576,
    }
    assert "memory_bytes" not in third


def test_torch_is_asked_for_gpus_only_if_it_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    device = types.SimpleNamespace(name="H200", total_memory=150_000_000_000, major=9, minor=0, uuid="12-34")
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 1, get_device_properties=lambda index: device
    )
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    assert hardware.hardware()["gpus"] == [
        {"name": "H200", "memory_bytes": 150_000_000_000, "uuid": "GPU-12-34", "capability": "9.0"}
    ]
    monkeypatch.setenv("PATH", "")
    cuda.is_initialized = lambda: False
    assert "gpus" not in hardware.hardware()


# -- environment


def test_secrets_and_strangers_are_left_out() -> None:
    kept = {"CUDA_VISIBLE_DEVICES": "0", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "2", "HF_HUB_OFFLINE": "1",
            "TORCH_LOGS": "x", "TORCHINDUCTOR_CACHE_DIR": "/c", "PYTORCH_CUDA_ALLOC_CONF": "y", "SLURM_JOB_ID": "7",
            "RANK": "0", "BAROGRAPH_PROJECT": "p"}  # fmt: skip
    dropped = {"HF_TOKEN": "a", "WANDB_API_KEY": "b", "AWS_SECRET_ACCESS_KEY": "c", "SLURM_JWT": "d", "HOME": "/h",
               "TORCH_PASSWORD": "e", "CUDA_AUTH": "f", "NCCL_CREDENTIAL": "g", "OMP_secret": "h",
               "BAROGRAPH_AIM_REPO": "aim://me:word@host/x", "MY_RANK": "1"}  # fmt: skip
    assert code.environment(kept | dropped)["variables"] == kept


def test_the_environment_says_which_python_and_machine() -> None:
    found = code.environment({"NCCL_ODD": "\udcff"})
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["process"] == os.getpid() and found["host"] == place.host() != ""
    assert found["variables"]["NCCL_ODD"].encode()  # text that a file can hold


def test_importing_is_cheap_and_loads_no_torch() -> None:
    code = "import sys, barograph.core.place; sys.exit('torch' in sys.modules or 'importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
