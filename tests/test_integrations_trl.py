"""TRL's trainers with a tiny model: fine-tuning, and GRPO with its completions as samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import barograph

pytest.importorskip("trl")
pytest.importorskip("datasets")
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from barograph.integrations.huggingface import BarographCallback

WORDS = {word: at for at, word in enumerate(["<pad>", "<eos>", "<unk>", *"abcdefghij0123456789+= "])}
COMMON: dict[str, Any] = {
    "max_steps": 2, "logging_steps": 1, "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "bf16": False,
    "report_to": "none", "logging_nan_inf_filter": False, "per_device_train_batch_size": 2,
}  # fmt: skip


def tokenizer() -> PreTrainedTokenizerFast:
    letters = Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=letters, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def model() -> GPT2LMHeadModel:
    ends = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(WORDS), n_positions=64, n_embd=16, n_layer=1, n_head=2, **ends))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BLACKBOX", "GIT"):
        monkeypatch.setenv(f"BAROGRAPH_{name}", "false")


@pytest.mark.filterwarnings("ignore")
def test_fine_tuning_is_recorded() -> None:
    from trl import SFTConfig, SFTTrainer

    callback = BarographCallback(watch={"budget": None}, project="sft")
    rows = Dataset.from_list([{"text": "abc def"}] * 8)
    arguments = SFTConfig("sft", max_length=16, **COMMON)
    SFTTrainer(model(), args=arguments, train_dataset=rows, processing_class=tokenizer(), callbacks=[callback]).train()
    callback.run.finish()
    run = barograph.StoredRun(callback.run.dir)
    for name in ("train/loss", "train/mean_token_accuracy", "model/grad_norm"):
        assert list(run.series(name).step) == [1, 2], name


@pytest.mark.filterwarnings("ignore")
def test_completions_of_grpo_are_samples_at_their_steps() -> None:
    from trl import GRPOConfig, GRPOTrainer

    def reward(completions: list[str], **rest: Any) -> list[float]:
        return [float(len(completion)) for completion in completions]

    for _ in range(2):  # the second training finds the first one's files
        callback = BarographCallback(project="grpo", watch=False)
        arguments = GRPOConfig("grpo", num_generations=2, max_completion_length=4, log_completions=True, **COMMON)
        rows = Dataset.from_list([{"prompt": "1+1="}] * 8)
        GRPOTrainer(
            model(), reward, args=arguments, train_dataset=rows, processing_class=tokenizer(), callbacks=[callback]
        ).train()
        callback.run.finish()
        run = barograph.StoredRun(callback.run.dir)
        samples = [record for record in run.records() if record.kind == "sample"]
        assert [record.step for record in samples] == [1, 1, 2, 2]
        assert {record.fields["prompt"] for record in samples} == {"1+1="}
        assert list(run.series("train/reward").step) == [1, 2] == list(run.series("train/completions/mean_length").step)
