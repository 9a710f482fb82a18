"""Keys of a configuration: which of them are seeds, names of folders, the batch, the tokenizer, the data.

In:   a nested configuration, as users write them.
Out:  flat keys with plain values; the part that each key plays in a comparison; numbers that are looked for by name.

A key is judged by its own name, in any spelling: `plan.learning_rate`, `learning rate (LR)`, `learningRate`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

# The parts, in the order in which they are looked for; the first that fits counts. "plain" is what is left.
_PARTS: tuple[tuple[str, str], ...] = (
    # what a training is known by, where it writes, how often it logs: it trains the same with another one
    (
        "bookkeeping",
        r"(?:run|exp|experiment|job|wandb|aim|mlflow|neptune|comet|tensorboard|tb|log|logs|logger|logging|logdir|output"
        r"|out|save|saving|ckpt|checkpoint|checkpoints|results?|cache|hub|profil\w*)"
        r"(?:_(?:name|id|dir|dirs|directory|path|file|folder|root|project|group|entity|notes|tags|mode|repo|prefix|token"
        r"|every|interval|freq|frequency|steps|level|total_limit|strategy|log_dir|output_dir|on_each_node|first_step"
        r"|best|last|safetensors|only_model|model_id|experiment|n_steps|samples?))*"
        r"|(?:eval|evaluation|val|val_loss|validation|sample|core_metric|hellaswag)_(?:every|interval|freq|frequency"
        r"|steps|strategy|on_start|delay|first)"
        r"|report_to|hostname|host|port|master_(?:addr|port)|local_rank|rank|timestamp|date|datetime|time|user|username"
        r"|notes|tags|comment|description|verbosity|verbose|quiet|disable_tqdm|resume(?:_\w+)?|push_to_hub|pid|name"
        r"|project|git_\w+|commit|version|genT|gent|sample_num_tokens|overwrite_output_dir|output_log_dir",
    ),
    ("seed", r"(?:\w+_)?(?:seed|seeds|random_state)(?:_(?:everything|offset|value|worker))?"),
    ("consequence", r"(?:num|n|total|trainable|active|non_embedding|nonembedding|model)_?(?:\w+_)?(?:params|parameters)"
     r"|(?:param|parameter)s?(?:_count|_total)|(?:estimated_|model_)?flops_per_(?:token|step|iteration|iter)"
     r"|(?:total_training|total)_(?:flops|flos)(?:_estimate)?"),
    ("speed", r"(?:\w+_)?(?:num_workers|n_workers|prefetch_factor|prefetch|pin_memory|persistent_workers)"
     r"|dataloader_(?:num_workers|pin_memory|persistent_workers|prefetch_factor)"),
    ("machine", r"(?:\w+_)?device(?:_type|_name|_map|_id)?|(?:\w+_)?gpu(?:_name|_type|_model)?"
     r"|(?:gpu_)?peak_(?:tflops|flops)|accelerator"),
    ("tokenizer", r"(?:\w+_)?tokeni[sz]er(?:_\w+)?|(?:n_|num_)?vocab(?:_(?:size|file|path|v))?|vocab_size\w*"
     r"|merges(?:_file)?"),
    ("validation", r"(?:val|valid|validation|eval|evaluation|dev|test|heldout)_(?:\w+_)?(?:data|dataset|datasets|set"
     r"|file|files|path|paths|pattern|split|shards?|bin|sha256|tokens|iters|iterations|batches|batch_size|max_steps|num_batches"
     r"|bytes|examples|samples)|(?:per_device_)?eval_batch_size|(?:num|n)_(?:val|eval)_(?:batches|tokens|samples)"
     r"|val_num_batches"),
    ("data", r"(?:train|training)_(?:\w+_)?(?:data|dataset|datasets|set|file|files|path|paths|pattern|split|shards?|bin"
     r"|sha256|bytes|tokens_file)|(?:data|dataset|datasets|corpus)(?:_(?:name|names|path|paths|dir|root|config|version"
     r"|revision|file|files|mix|mixture|weights|pattern|split|sha256|hash))?|(?:mixture|data_mix\w*)"),
    ("batch", r"(?:\w+_)?(?:batch|batch_size|batchsize|bsz|micro_batch|minibatch)(?:_(?:size|tokens|b|per_\w+))*"
     r"|tokens_per_(?:batch|step|iter|iteration)|(?:gradient|grad)_accum\w*|accumulate_grad_batches|accumulation_steps"),
    ("sequence", r"(?:\w+_)?(?:seq_?len|seq_?length|sequence_len|sequence_length|context|context_len|context_length"
     r"|ctx_len|n_ctx|block_size|max_length|model_max_length|max_position_embeddings|cutoff_len)(?:_t)?"),
    ("length", r"(?:max|total|num|n|train|training|planned)_(?:train_|training_|optimizer_)?(?:steps|iters|iterations"
     r"|epochs|tokens|updates|batches|train_epochs)|steps|iterations|iters|epochs?|lr_decay_(?:steps|iters)|train_num_batches"),
    ("loss", r"label_smoothing\w*|z_loss\w*|(?:\w+_)?aux(?:iliary)?_loss\w*"
     r"|(?:router_)?(?:aux|z)_(?:loss_)?(?:coef\w*|weight)"
     r"|loss_(?:type|reduction|fn|function|scale_factor|weight\w*)"),
    ("layout", r"world_size|num_processes|n_gpus?|num_gpus?|gpus|nproc_per_node|nnodes|num_nodes|devices"
     r"|(?:\w+_)?parallel\w*|(?:tp|pp|dp|cp|ep|fsdp|ddp|zero)_?(?:size|degree|stage|world_size)?|sharding_strategy"),
)  # fmt: skip
_COMPILED = tuple((part, re.compile(pattern)) for part, pattern in _PARTS)

_LONGEST = 200
_MOST_KEYS = 5_000


def normal(key: str) -> str:
    """A key's own name: the last part of its path, in lower case, with underscores."""
    leaf = re.split(r"[./](?=[^./\s]*$)", key.strip())[-1] if not key.endswith((".", "/")) else key
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", leaf)
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


@lru_cache(1 << 14)
def part_of(key: str) -> str:
    """What a key is about: one of bookkeeping, seed, consequence, speed, machine, tokenizer, validation, data, batch,
    sequence, length, loss, layout, or plain."""
    name = normal(key)
    above = {normal(part) for part in re.split(r"[./]", key)[:-1]}
    if above & {"wandb", "aim", "mlflow", "logging", "logger", "checkpoint", "checkpointing"}:
        return "bookkeeping"
    place = name in ("name", "version", "revision", "path", "paths", "dir", "file", "files", "split", "id")
    if place and above & {"tokenizer"}:
        return "tokenizer"
    if place and above & {"val", "valid", "validation", "eval", "test", "dev"}:
        return "validation"
    if place and above & {"data", "dataset", "datasets", "corpus"}:
        return "data"
    block = next((part for part, pattern in _COMPILED if pattern.fullmatch(name)), "plain")
    if block == "bookkeeping" and name in ("name", "version") and above:
        return "plain"  # model.name, optimizer.name: which one it is
    return block


def flatten(config: Mapping[str, Any], most: int = _MOST_KEYS) -> dict[str, Any]:
    """Nested configuration → dotted keys and plain values; lists and what is not plain become text. At most 5,000."""
    result: dict[str, Any] = {}
    for key, value in _leaves(config, "", 0):
        if len(result) >= most:
            break
        result[key] = value
    return result


def _leaves(config: Mapping[str, Any], lead: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        path = f"{lead}{key}".replace("/", ".")  # options of a log are named section/key
        if isinstance(value, Mapping) and value and depth < 20:
            yield from _leaves(value, f"{path}.", depth + 1)
        else:
            yield path, plain(value)


def plain(value: Any) -> Any:
    """A value that can be compared and printed: a number, a word, True, False, None; numbers in text are numbers."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return _number_in(value)
    if isinstance(value, (Mapping, Sequence)):
        try:
            return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            return str(value)
    return str(value)


def _number_in(text: str) -> Any:
    """6.000000e-04 of a printed table and 0.0006 are one value; a hash of digits stays a text."""
    if len(text) <= 24 and re.fullmatch(r"[+-]?(?:\d{1,17}|\d*\.\d+|\d+\.)(?:[eE][+-]?\d{1,3})?", text):
        value = float(text)
        return int(value) if value.is_integer() and abs(value) < 2**53 and not re.search(r"[.eE]", text) else value
    return text


def same(one: Any, other: Any) -> bool:
    """Whether two plain values mean the same: 1 and 1.0 do, True and 1 don't, NaN is equal to NaN."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other)


def shown(value: Any) -> str:
    """A plain value as people write it, at most 200 characters."""
    if isinstance(value, float):
        return f"{value:.10g}"
    words = str(value)
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
