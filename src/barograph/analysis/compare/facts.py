"""What a run was, as far as a comparison asks: configuration, code, packages, machine, data, seeds, batch.

In:   a stored run.
Out:  `RunFacts`: flat, plain values; what is not known is absent, and said to be.

Of the log file only the beginning is read: a run says what it is before it trains.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barograph.core.configuration import (
    ACCUMULATION,
    BATCH,
    BATCH_TOKENS,
    PROCESSES,
    SEQUENCE,
    VOCABULARY,
    WHOLE_BATCH,
    Configuration,
    planned_steps,
)
from barograph.log.read import records_from
from barograph.query.groups import setup_of
from barograph.query.keys import flatten, normal, part_of, plain

if TYPE_CHECKING:
    from barograph.core.record import Record
    from barograph.query.stored import StoredRun

_HEAD = 400  # records: options, data, devices and the speed of light come before the first steps
# Packages that shape a training's numbers or speed; a new version of another one is not a change.
_SHAPING = re.compile(
    r"torch|torchao|torchtune|torchtitan|jax|jaxlib|flax|optax|tensorflow|keras|mlx|numpy|transformers|accelerate"
    r"|deepspeed|megatron.*|flash[-_]attn.*|flash[-_]linear[-_]attention|xformers|triton|apex|transformer[-_]engine.*"
    r"|bitsandbytes|peft|trl|unsloth|tokenizers|datasets|sentencepiece|tiktoken|lightning|pytorch[-_]lightning|mosaicml.*"
    r"|composer|liger[-_]kernel|nvidia[-_].*|cupy.*|fairscale|safetensors|nemo.*|surogate|llmq|muon.*|mamba[-_]ssm",
    re.IGNORECASE,
)
# Variables that name a place or a process, not a setting.
_PLACE = re.compile(
    r"MASTER_(?:ADDR|PORT)|(?:LOCAL_|GROUP_|NODE_|ROLE_)?RANK|(?:LOCAL_|ROLE_)?WORLD_SIZE|HOSTNAME|SLURM_.*|PBS_.*|LSB_.*"
    r"|TORCHELASTIC_.*|.*_(?:DIR|PATH|HOME|CACHE|FILE)|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|OMPI_.*"
    r"|PMI_.*|BAROGRAPH_.*|WANDB_.*"
)
_FLOPS = ("flops_per_token", "estimated_flops_per_token", "model_flops_per_token")
# A "batch size" above this is counted in tokens: no language model is trained on that many sequences a step.
_TOKENS_ABOVE = 16_384


@dataclass
class RunFacts:
    """values: (part, key) → plain value; parts as in `difference`. known: the parts that are known at all.

    seeds: key → value. batch_tokens, batch_samples, sequence: of the configuration, None if it does not say.
    flops_per_token: of the speed of light or the configuration. planned_steps: of the plan. code_files: files in the
    uncommitted diff, each with a hash of its own diff.
    """

    values: dict[tuple[str, str], Any] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    seeds: dict[str, Any] = field(default_factory=dict)
    batch_tokens: float | None = None
    batch_samples: float | None = None
    sequence: float | None = None
    vocabulary: float | None = None
    flops_per_token: float | None = None
    planned_steps: float | None = None
    code_files: dict[str, str] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        """The configuration alone, flat."""
        return {key: value for (part, key), value in self.values.items() if part == "config"}

    def setup(self) -> dict[str, Any]:
        """The configuration that makes runs repeats of each other: without seeds, names, folders, and consequences."""
        return setup_of(self.config())


def gather(run: StoredRun, about: Mapping[str, Any] | None = None, head: bool = True) -> RunFacts:
    """The facts of a run. about: its manifest, if it was read already. head: also look into the log's beginning."""
    about = run.manifest if about is None else about
    facts = RunFacts()
    records = _head_of(run) if head else []
    config = about.get("config")
    if not isinstance(config, Mapping) or not config:
        config = {r.fields["name"]: r.fields.get("value") for r in records if r.kind == "option" and "name" in r.fields}
    _take_config(facts, config)
    _take_code(facts, about)
    _take_machine(facts, about, records)
    _take_data(facts, about, records)
    facts.planned_steps = planned_steps({**about, "config": config})
    light = next((r.fields for r in records if r.kind == "sol"), {})
    parts = [_above_zero(light.get(name)) for name in ("blocks", "lm_head", "attention")]
    measured = _above_zero(light.get("flops_per_token")) or sum(filter(None, parts))
    facts.flops_per_token = measured or facts.flops_per_token
    return facts


def _head_of(run: StoredRun) -> list[Record]:
    files = run.log_files()[:1]
    if not files:
        return []

    kinds = ("option", "dataset", "sol", "gpu-model")
    return [record for record, _ in itertools.islice(records_from(files[0]), _HEAD) if record.kind in kinds]


def _take_config(facts: RunFacts, config: Mapping[str, Any]) -> None:
    flat = flatten(config)
    if flat:
        facts.known.add("config")
    for key, value in flat.items():
        facts.values["config", key] = value
        if part_of(key) == "seed":
            facts.seeds[key] = value
    amount = Configuration(config).amount
    facts.sequence, facts.vocabulary, facts.flops_per_token = map(amount, (SEQUENCE, VOCABULARY, _FLOPS))
    tokens, whole, each = map(amount, (BATCH_TOKENS, WHOLE_BATCH, BATCH))
    if tokens is None and whole is not None and whole >= _TOKENS_ABOVE:
        tokens, whole = whole, None
    if whole is None and each is not None:
        whole = each * (amount(ACCUMULATION) or 1.0) * (amount(PROCESSES) or 1.0)
    if tokens is None and whole is not None and facts.sequence is not None:
        tokens = whole * facts.sequence
    facts.batch_tokens = tokens
    facts.batch_samples = whole if tokens is None or facts.sequence is None else tokens / facts.sequence


def _take_code(facts: RunFacts, about: Mapping[str, Any]) -> None:
    git = about.get("git")
    git = git if isinstance(git, Mapping) else {}
    commit = about.get("repo_commit") or git.get("commit")
    if commit:
        facts.known.add("code")
        facts.values["code", "commit"] = str(commit)[:12]
        diff = git.get("diff")
        if isinstance(diff, str) and diff:
            facts.values["code", "uncommitted diff"] = hashlib.sha256(diff.encode("utf-8", "replace")).hexdigest()[:12]
            facts.code_files = _files_in(diff)
        elif git.get("dirty"):
            facts.values["code", "uncommitted diff"] = "not kept"
        else:
            facts.values["code", "uncommitted diff"] = "none"
    packages = about.get("packages")
    if isinstance(packages, Mapping) and packages:
        facts.known.add("packages")
        facts.values.update({("packages", str(name)): str(version) for name, version in packages.items()})


def _files_in(diff: str) -> dict[str, str]:
    result: dict[str, str] = {}
    for piece in re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE):
        named = re.match(r"diff --git a/(.+?) b/", piece)
        if named:
            # positions move with every line above: what counts is what was taken out and put in
            lines = [line for line in piece.splitlines() if line[:1] in "+-"]
            result[named[1]] = hashlib.sha256("\n".join(lines).encode("utf-8", "replace")).hexdigest()
    return result


def _take_machine(facts: RunFacts, about: Mapping[str, Any], records: list[Record]) -> None:
    hardware = about.get("hardware")
    hardware = hardware if isinstance(hardware, Mapping) else {}
    gpus = [str(gpu.get("name")) for gpu in hardware.get("gpus") or () if isinstance(gpu, Mapping) and gpu.get("name")]
    gpus = gpus or [str(r.fields["name"]) for r in records if r.kind == "gpu-model" and r.fields.get("name")]
    if gpus:
        counted = Counter(gpus).most_common()
        facts.values["hardware", "GPUs"] = ", ".join(f"{count} × {name}" for name, count in counted)
    processor = hardware.get("cpu")
    if isinstance(processor, Mapping) and processor.get("model") and not gpus:
        facts.values["hardware", "CPU"] = (
            f"{processor['model']}, {processor.get('usable', processor.get('cores'))} cores"
        )
    if gpus or hardware:
        facts.known.add("hardware")
        if about.get("world_size"):
            facts.values["hardware", "processes"] = plain(about["world_size"])
    environment = about.get("environment")
    if isinstance(environment, Mapping) and environment:
        facts.known.add("environment")
        if environment.get("python"):
            facts.values["environment", "Python"] = str(environment["python"])
        variables = environment.get("variables")
        for name, value in variables.items() if isinstance(variables, Mapping) else ():
            if not _PLACE.fullmatch(str(name)):
                facts.values["environment", str(name)] = str(value)


def _take_data(facts: RunFacts, about: Mapping[str, Any], records: list[Record]) -> None:
    splits: dict[str, Mapping[str, Any]] = {}
    described = about.get("dataset")
    if isinstance(described, Mapping):
        if any(isinstance(value, Mapping) for value in described.values()):
            splits.update({str(key): value for key, value in described.items() if isinstance(value, Mapping)})
        elif described:
            splits["train"] = described
    elif isinstance(described, str) and described:
        splits["train"] = {"name": described}
    for record in records:
        if record.kind == "dataset":
            splits.setdefault(str(record.fields.get("split", "train")), record.fields)
    for split, fields in splits.items():
        # the position in the files and the seed are where a run stands, not what it reads
        told = {
            key: plain(value)
            for key, value in fields.items()
            if key not in ("split", "file_index", "chunk_index", "seed", "epoch", "position")
        }
        if told:
            facts.known.add("data")
            part = "validation" if re.match(r"(?:val|eval|dev|test|held)", normal(split)) else split
            facts.values["data", part] = ", ".join(
                f"{value:,} {key}" if isinstance(value, int) else f"{key} {value}" for key, value in told.items()
            )
        if fields.get("seed") is not None and split == "train":
            facts.seeds.setdefault("data", plain(fields["seed"]))


def shapes_training(package: str) -> bool:
    """Whether another version of a package may change what a training does."""
    return _SHAPING.fullmatch(package) is not None


def _above_zero(value: Any) -> float | None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    return float(value) if usable else None
