"""Where rules and thresholds come from: papers, repositories, issues and documents that anybody can open.

In:   nothing.
Out:  `SOURCES` by short name; `cite`, one of a rule's sources as Markdown. docs/sources.md is written from it.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class RuleSource(NamedTuple):
    """What a short name stands for. where: a link, a paper's id, or repository, file and commit."""

    name: str
    title: str
    by: str
    where: str

    @property
    def anchor(self) -> str:
        """The name as the headings of docs/sources.md are linked."""
        return re.sub(r"[^a-z0-9 -]", "", self.name.lower()).replace(" ", "-")

    @property
    def text(self) -> str:
        """One paragraph: title, authors and year, where to find it."""
        return f"{self.title}. {self.by}. {self.where}."


def _arxiv(number: str) -> str:
    return f"[arXiv:{number}](https://arxiv.org/abs/{number})"


def _file(repository: str, path: str, commit: str) -> str:
    address = f"https://github.com/{repository}/blob/{commit}/{path}"
    return f"[{repository}: {path}]({address}), commit {commit[:7]}"


def _issue(repository: str, number: int) -> str:
    return f"[{repository}#{number}](https://github.com/{repository}/issues/{number})"


_DOCUMENTS = (
    RuleSource("Surogate metrics guide", "Training Metrics & Monitoring", "Surogate's documentation",
           "[invergent-ai/surogate](https://github.com/invergent-ai/surogate), docs/docs/guides/metrics.md"),
    RuleSource("speedrun-mup metrics analysis", "W&B Metrics and Performance Impact Analysis",
           "speedrun_mup's documentation, 2025",
           _file("Unakar/speedrun_mup", "METRICS_ANALYSIS.md", "24a6968d4225f6932a7b368f05c0a99abff698e5")),
    RuleSource("stability guide", "Training Monitoring & Stability Guide", "nano-train's documentation, February 2026",
           "[lastweek/nano-train](https://github.com/lastweek/nano-train), docs/training_monitoring.md, "
           "commit 6415f90"),
    RuleSource("KempnerForge metrics", "kempnerforge.metrics.tracker", "KempnerForge's reference",
           _file("KempnerInstitute/KempnerForge", "kempnerforge/metrics/tracker.py",
                 "9b6eabf71d0b90a99c9c432f5ae66bb0a26d7e04")),
    RuleSource("picoLLM run analysis", "Logs, metrics and run analysis, a note of the picoLLM course", "M. Kundan",
           _file("Montekkundan/llm", "picollm/accelerated/pretrain/train.py",
                 "095880e9197c7325f838e0ce07fa5ae0de3a7195")),
)  # fmt: skip

_PAPERS = (
    RuleSource("AdaGC", "AdaGC: Improving Training Stability for Large Language Model Pretraining",
           "G. Wang, S. Li, C. Chen et al., 2025", _arxiv("2502.11034")),
    RuleSource("Adam", "Adam: A Method for Stochastic Optimization", "D. P. Kingma, J. Ba, ICLR 2015",
           _arxiv("1412.6980")),
    RuleSource("AdamW", "Decoupled Weight Decay Regularization", "I. Loshchilov, F. Hutter, ICLR 2019",
           _arxiv("1711.05101")),
    RuleSource("attention entropy", "Stabilizing Transformer Training by Preventing Attention Entropy Collapse",
           "S. Zhai, T. Likhomanenko, E. Littwin et al., ICML 2023", _arxiv("2303.06296")),
    RuleSource("AutoTrainer", "AutoTrainer: An Automatic DNN Training Problem Detection and Repair System",
           "X. Zhang, J. Zhai, S. Ma, C. Shen, ICSE 2021", "Thresholds: "
           + _file("shiningrain/AUTOTRAINER", "AutoTrainer/utils/monitor.py",
                   "5175f6ccdf24e9378bc58f196de242c8e7b931b2")),
    RuleSource("batch normalisation",
           "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift",
           "S. Ioffe, C. Szegedy, ICML 2015", _arxiv("1502.03167")),
    RuleSource("BLOOM", "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model", "BigScience Workshop, 2022",
           _arxiv("2211.05100")),
    RuleSource("ByteRobust", "Robust LLM Training Infrastructure at ByteDance", "B. Wan et al., SOSP 2025",
           _arxiv("2509.16293")),
    RuleSource("DAPO", "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", "Q. Yu et al., 2025",
           _arxiv("2503.14476")),
    RuleSource("DeepDiagnosis", "DeepDiagnosis: Automatically Diagnosing Faults and Recommending Actionable Fixes in "
           "Deep Learning Programs", "M. Wardat, B. D. Cruz, W. Le, H. Rajan, ICSE 2022", _arxiv("2112.04036")),
    RuleSource("FALCON", "FALCON: Pinpointing and Mitigating Stragglers for Large-Scale Hybrid-Parallel Training",
           "T. Wu et al., 2024 (Greyhound, USENIX ATC 2025)", _arxiv("2410.12588")),
    RuleSource("Hampel", "The Influence Curve and Its Role in Robust Estimation", "F. R. Hampel, 1974",
           "Journal of the American Statistical Association 69(346), 383-393"),
    RuleSource("Kimi K2", "Kimi K2: Open Agentic Intelligence", "Kimi Team, 2025", _arxiv("2507.20534")),
    RuleSource("learning rate annealing", "Scaling Law with Learning Rate Annealing",
           "H. Tissue, V. Wang, L. Wang, 2024",
           _arxiv("2408.11029")),
    RuleSource("Llama 3", "The Llama 3 Herd of Models", "A. Grattafiori et al., 2024", _arxiv("2407.21783")),
    RuleSource("loss-free balancing", "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts",
           "L. Wang, H. Gao, C. Zhao, X. Sun, D. Dai, 2024", _arxiv("2408.15664")),
    RuleSource("MegaScale", "MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs",
           "Z. Jiang et al., NSDI 2024", _arxiv("2402.15627")),
    RuleSource("muP", "Tensor Programs V: Tuning Large Neural Networks via Zero-Shot Hyperparameter Transfer",
           "G. Yang, E. J. Hu et al., 2022", _arxiv("2203.03466")),
    RuleSource("OLMo 2", "2 OLMo 2 Furious", "Team OLMo, 2025", _arxiv("2501.00656") + ", section 3.2"),
    RuleSource("OPT", "OPT: Open Pre-trained Transformer Language Models", "S. Zhang et al., 2022",
           _arxiv("2205.01068") + "; the log book is "
           + _file("facebookresearch/metaseq", "projects/OPT/chronicles/56_percent_update.md",
                   "f2cd36798793604cf51ab8b8a2cb167c964f9667")),
    RuleSource("PaLM", "PaLM: Scaling Language Modeling with Pathways", "A. Chowdhery et al., 2022",
           _arxiv("2204.02311")),
    RuleSource("small-scale proxies", "Small-scale proxies for large-scale Transformer training instabilities",
           "M. Wortsman, P. J. Liu, L. Xiao et al., 2023", _arxiv("2309.14322")),
    RuleSource("TrainCheck",
           "Training with Confidence: Catching Silent Errors in Deep Learning Training with Automated Proactive Checks",
           "Y. Jiang et al., OSDI 2025", "The reproduced errors: "
           + _file("OrderLab/TrainCheck", "docs/ae-eval-s5.1-silent-issue-detection.md",
                   "9233f36e8f2e2798113f8473ef84142a57d94024")),
    RuleSource("WeSaR", "Initialization of Large Language Models via Reparameterization to Mitigate Loss Spikes",
           "K. Nishida, K. Nishida, K. Saito, EMNLP 2024", _arxiv("2410.05052")),
)  # fmt: skip

_TOOLS = (
    RuleSource("ml-engineering", "Understanding Training Loss Patterns", "S. Bekman, Machine Learning Engineering",
           _file("stas00/ml-engineering", "training/instabilities/training-loss-patterns.md",
                 "4e8387519e8b491854cce56d53e0280b453aab96")),
    RuleSource("NVIDIA Xid", "XID Errors", "NVIDIA's GPU deployment documentation",
           "https://docs.nvidia.com/deploy/xid-errors/"),
    RuleSource("OLMo-core", "StabilityMonitor and SkipStepOptimizer: 6 standard deviations over 128 values",
           "Allen Institute for AI",
           _file("allenai/OLMo-core", "src/olmo_core/train/callbacks/stability_monitor.py",
                 "54f9ee3dda0fbd205fdb4948a850314fe44c6af5")),
    RuleSource("PyTorch AMP", "Automatic Mixed Precision: the gradient scaler skips steps whose gradients overflow",
           "PyTorch's documentation", "https://docs.pytorch.org/docs/stable/amp.html"),
    RuleSource("DeepSpeed", "Training API and configuration: fp16 loss scaling", "DeepSpeed's documentation",
           "https://www.deepspeed.ai/docs/config-json/"),
    RuleSource("SageMaker Debugger", "List of Debugger Built-in Rules", "Amazon SageMaker Developer Guide",
           "[awsdocs/amazon-sagemaker-developer-guide](https://github.com/awsdocs/amazon-sagemaker-developer-guide), "
           "doc_source/debugger-built-in-rules.md, commit dcfe1c6b"),
    RuleSource("cgroup v2", "Control Group v2: memory.events", "The Linux kernel documentation, 2015 on",
           "[docs.kernel.org](https://docs.kernel.org/admin-guide/cgroup-v2.html)"),
    RuleSource("torchelastic", "Error propagation: exit codes and signals of workers", "PyTorch, 2021 on",
           "[docs.pytorch.org](https://docs.pytorch.org/docs/stable/elastic/errors.html)"),
    RuleSource("TraceML", "Diagnostic policies for steps, ranks and memory", "TraceOpt, 2026",
           "[traceopt-ai/traceml](https://github.com/traceopt-ai/traceml), src/traceml"),
    RuleSource("TRL", "GRPO Trainer: logged metrics", "Hugging Face's documentation",
           "https://huggingface.co/docs/trl/grpo_trainer"),
)  # fmt: skip

_ISSUES = (
    RuleSource("accelerate#2665", "With FSDP and the wrong order of wrapping the optimizer's step changes nothing",
           "Issue", _issue("huggingface/accelerate", 2665)),
    RuleSource("deepspeed#1801", "Weights of layer norms differ between tensor-parallel ranks (BLOOM)", "Issue",
           _issue("deepspeedai/DeepSpeed", 1801)),
    RuleSource("levanter#391", "Counters of NaN and of loss spikes are asked for", "Issue",
           _issue("stanford-crfm/levanter", 391)),
    RuleSource("lightning#18780", "After a resume data are read again", "Issue",
           _issue("Lightning-AI/pytorch-lightning", 18780)),
    RuleSource("marin#2830", "Alerts on divergence, stalls and lost throughput are asked for", "Issue",
           _issue("marin-community/marin", 2830)),
    RuleSource("mmpretrain#702", "Frozen stages are trained", "Issue", _issue("open-mmlab/mmpretrain", 702)),
    RuleSource("pytorch#104336", "DDP hooks are lost when a module is moved", "Issue",
           _issue("pytorch/pytorch", 104336)),
    RuleSource("transformers#34204", "Gradient accumulation scales the loss wrongly", "Issue",
           _issue("huggingface/transformers", 34204)),
)  # fmt: skip

SOURCES: dict[str, RuleSource] = {item.name: item for item in (*_DOCUMENTS, *_PAPERS, *_TOOLS, *_ISSUES)}

_CHAPTERS = (
    ("Documents", "The documents whose names, fields and thresholds Barograph takes over.", _DOCUMENTS),
    ("Papers", "", _PAPERS),
    ("Tools and guides", "", _TOOLS),
    ("Issues", "", _ISSUES),
)


def cite(entry: str) -> str:
    """A rule's source (`name`, or `name: what is taken from it`) as Markdown. Raises KeyError for an unknown name."""
    name, colon, detail = entry.partition(": ")
    source = SOURCES[name]
    link = f"[{name}](../sources.md#{source.anchor}){colon}{detail}"
    return f"{link}. {source.title}. {source.by}."


def sources_page() -> str:
    """docs/sources.md."""
    lines = ["# Sources", "", "What rules, thresholds and figures come from. A page that uses one links to it by its "
             "short name; what is marked \"ours\" is Barograph's own choice, calibrated on its benchmark."]  # fmt: skip
    for heading, about, sources in _CHAPTERS:
        lines += ["", f"## {heading}"] + (["", about] if about else [])
        for source in sources:
            lines += ["", f"### {source.name}", "", source.text]
    return "\n".join(lines) + "\n"
