"""Logs that programs print: one file a dialect, and one reader that all of them share.

`SOURCES` are asked in this order; of dialects with equally many rows in a file's beginning the first one has it.
"""

from __future__ import annotations

from barograph.importing.textlogs import choice
from barograph.importing.textlogs.deepspeed import SOURCE as deepspeed
from barograph.importing.textlogs.engine import Dialect
from barograph.importing.textlogs.fairseq import SOURCE as fairseq
from barograph.importing.textlogs.hf_printed import SOURCE as hf_printed
from barograph.importing.textlogs.histories import SOURCE as histories
from barograph.importing.textlogs.kempnerforge import SOURCE as kempnerforge
from barograph.importing.textlogs.keras_text import SOURCE as keras_text
from barograph.importing.textlogs.llamafactory import SOURCE as llamafactory
from barograph.importing.textlogs.llmc import SOURCE as llmc
from barograph.importing.textlogs.llmq_text import SOURCE as llmq_text
from barograph.importing.textlogs.megatron import SOURCE as megatron
from barograph.importing.textlogs.modded_nanogpt import SOURCE as modded_nanogpt
from barograph.importing.textlogs.nanochat import SOURCE as nanochat
from barograph.importing.textlogs.nanogpt import SOURCE as nanogpt
from barograph.importing.textlogs.plain import SOURCE as plain
from barograph.importing.textlogs.recurring import SOURCE as recurring
from barograph.importing.textlogs.stanzas import SOURCE as stanzas
from barograph.importing.textlogs.surogate_text import SOURCE as surogate_text
from barograph.importing.textlogs.torchtitan import SOURCE as torchtitan
from barograph.importing.textlogs.yolo_results import SOURCE as yolo_results

SOURCES: tuple[Dialect, ...] = (
    fairseq, llamafactory, nanochat, modded_nanogpt, llmc, llmq_text, surogate_text, megatron, torchtitan,
    kempnerforge, nanogpt, hf_printed, deepspeed, keras_text, stanzas, yolo_results, plain, recurring, histories,
)  # fmt: skip
choice.offer(SOURCES)
