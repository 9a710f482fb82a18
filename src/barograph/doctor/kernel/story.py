"""The story of an incident: one finding for what belongs together, the first cause before its consequences.

In:   findings of single rules.
Out:  incidents, the worst first.

Findings belong to one incident if they are of one chain (the training, or the machinery around it) and begin near each
other: within 50 logged rows, or 5% of what the run has come to, whichever is more; or if one is still seen when the
other begins, and both are of one kind or the first cause of the one is among those of the other (of a spike what may
explain nearly everything has to be the first one, too); or if one is a
standing fault, a proven fact of how the training is made that lasts, and the other a finding about losses, gradients,
weights or evaluations behind it that has no proof of another cause: of what is wrong with evaluations alone, one about
evaluations. The worst one speaks for it, of equals one that has proof of its cause, then one that says how the
training is made, else the one that began first. Where the worst has no proof, and another is a proven fact of how the
training is made, that one speaks for it, as gravely, behind the worst one's words. The
others are in its evidence as `story`, in the order in which they began. Its causes are those of all that what was
measured does not rule out: first those that are proven, beside which info findings have none to add, then the ones that
several rules name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from barograph.doctor.kernel.finding import SEVERITIES, Finding
from barograph.doctor.kernel.registry import proves_of

MACHINERY = frozenset({"speed", "memory", "machine", "ranks"})
_ORDER = (
    "config", "desync", "hardware", "straggler", "input_bound", "stall", "slowdown", "memory", "learning_rate",
    "resume", "replay", "data", "padding", "repeated_data", "missing_zero_grad", "frozen", "epsilon", "routing",
    "dead_expert", "attention", "logits", "weight_growth", "activations", "saturated", "dead", "loss_scale",
    "update_ratio", "vanishing", "exploding", "clipping", "jump_down", "zero", "nonfinite", "spike", "divergence",
    "not_learning", "plateau", "overfit", "rl", "eval", "efficiency", "logging", "forecast",
)  # fmt: skip
_MOST = 40  # findings of one rule that are kept apart
_COMMON = {"learning rate too high": 0.45}  # it may explain nearly everything, so that it is named says least
_SURE = 0.95  # the confidence of a rule that has proof
_TOLD = 12  # members that a story names
STANDING = "standing"  # in the evidence of what is proven and lasts as long as the training
CERTAIN = "certain"  # in the evidence of an info finding whose one cause the watch has seen
_EFFECTS = frozenset({"loss", "gradient", "model", "eval", "optimizer"})  # families of what may follow from it
Impossible = Callable[[Finding, str, bool], bool]
"""Whether a cause of a finding can't be; and whether the finding proves it."""


def tell(
    findings: Iterable[Finding],
    spacing: float = 1.0,
    length: int = 0,
    impossible: Impossible = lambda *_: False,
) -> list[Finding]:
    """Incidents. spacing: steps between two logged rows; length: steps of the run so far. impossible: causes that can't
    be.
    """
    gap = max(50 * spacing, 0.05 * length)
    incidents: list[list[Finding]] = []
    open_ones: dict[bool, list[Finding]] = {}
    for finding in sorted(
        _together(findings), key=lambda item: (item.segment, item.step, _rank(item), item.rule, item.key)
    ):
        chain = finding.family in MACHINERY and finding.kind not in ("desync", "nonfinite")
        last, ongoing = open_ones.get(chain), _ongoing(incidents, finding)
        if ongoing is not None:
            ongoing.append(finding)
        elif last is not None and last[-1].segment == finding.segment and finding.step - last[-1].step <= gap:
            last.append(finding)
        else:
            open_ones[chain] = [finding]
            incidents.append(open_ones[chain])
    return in_order(item for incident in incidents for item in _told(incident, impossible))


def _ongoing(incidents: list[list[Finding]], finding: Finding) -> list[Finding] | None:
    """The incident that was seen before and after this finding, and is of its kind or has a first cause that may be the
    finding's; of an info finding that of its rule."""
    labels = [_label(cause) for cause in finding.causes]
    passes = finding.kind == "spike"  # what lasted did not pass with it
    named = {label for at, label in enumerate(labels) if not (at and passes and label in _COMMON)}
    for members in incidents:
        seen = max((member.last_step for member in members if member.severity != "info"), default=0)
        for member in members:
            if member.segment != finding.segment or member.step > finding.step:
                continue
            if member.severity == "info" and not _proven(member):
                continue
            stands = finding.family in _stands(member) and not _proven(finding)
            lasts = finding.step <= member.last_step
            if finding.severity == "info":
                alike = member.rule == finding.rule and (stands or lasts)
            else:
                caused = bool(member.causes) and _label(member.causes[0]) in named and finding.step <= seen
                alike = stands or caused or (lasts and member.kind == finding.kind) or _asks(member, finding)
            if alike:
                return members
    return None


def _label(cause: str) -> str:
    return cause.partition(":")[0].strip().lower()


def _asks(member: Finding, finding: Finding) -> bool:
    """Whether a fault that lasts, and of which the cause is not known, finds it in one of its kind that has proof."""
    lasts = bool(member.evidence.get(STANDING)) and not _proven(member)
    return lasts and member.kind == finding.kind and bool(_proven(finding))


def _stands(member: Finding) -> frozenset[str]:
    """Families of what follows from a finding as long as the training lasts; none where it has no proof."""
    proves = proves_of(member.rule)
    if proves == "evaluation":
        return frozenset({"eval"}) if _proven(member) else frozenset()
    lasts = member.evidence.get(STANDING) or (proves == "training" and _proven(member))
    return _EFFECTS if lasts else frozenset()


_DIVERGED = "diverged"  # the evidence of an incident in which the loss was no longer finite: since which step


def in_order(incidents: Iterable[Finding]) -> list[Finding]:
    """The worst first, of equals the one that came first. Of the worst a loss that is not finite comes first: whatever
    went before, that is what has become of the run."""
    return sorted(
        incidents,
        key=lambda item: (
            SEVERITIES.index(item.severity), item.rule != "non_finite_loss" and _DIVERGED not in item.evidence,
            item.step, _rank(item), item.rule, item.key,
        ),
    )  # fmt: skip


def _possible(finding: Finding, impossible: Impossible) -> Finding:
    """A finding without causes that can't be; as it is where no other would be left."""
    proven = bool(_proven(finding))
    kept = [cause for cause in finding.causes if not impossible(finding, cause, proven)]
    return finding if len(kept) in (0, len(finding.causes)) else msgspec.structs.replace(finding, causes=kept)


def _rank(finding: Finding) -> int:
    return _ORDER.index(finding.kind) if finding.kind in _ORDER else len(_ORDER)


def _together(findings: Iterable[Finding]) -> list[Finding]:
    """Many findings of one rule become one: a series of spikes, a hundred layers."""
    by_rule: dict[tuple[str, str, int], list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault((finding.rule, finding.severity, finding.segment), []).append(finding)
    kept: list[Finding] = []
    for group in by_rule.values():
        if len(group) <= _MOST:
            kept += group
            continue
        first = min(group, key=lambda item: (item.step, item.key))
        last = max(item.last_step for item in group)
        evidence = first.evidence | {"times": len(group)}
        message = f"{first.message} ({len(group)} times up to step {last})"
        kept.append(msgspec.structs.replace(first, last_step=last, message=message, evidence=evidence))
    return kept


def _once(members: list[Finding]) -> list[Finding]:
    """Without what a rule said twice, of two series or by two thresholds; the worse one stays."""
    kept: dict[tuple[str, int, str], Finding] = {}
    for member in members:
        said = kept.get((member.rule, member.step, member.message))
        if said is None or SEVERITIES.index(member.severity) < SEVERITIES.index(said.severity):
            kept[member.rule, member.step, member.message] = member
    return list(kept.values())


def _told(members: list[Finding], impossible: Impossible) -> list[Finding]:
    """The incident's one finding. Info findings that nothing worse goes with stay info findings of their own."""
    members = [_possible(member, impossible) for member in _once(members)]
    worst = min(SEVERITIES.index(member.severity) for member in members)
    if worst == SEVERITIES.index("info") or len(members) == 1:
        return members
    heads = [member for member in members if SEVERITIES.index(member.severity) == worst]
    roots = [member for member in members if _is_root(member)]
    follows = None  # what is worse than a proven fact of how the training is made, and comes of it
    if roots and not any(map(_proven, heads)):
        follows, heads = min(heads, key=lambda item: (item.step, _rank(item), item.rule, item.key)), roots
    head = min(
        heads,
        key=lambda item: (
            not _proven(item),
            not item.evidence.get(STANDING),
            item.step,
            _rank(item),
            item.rule,
            -item.last_step,
            item.key,
        ),
    )
    # what a rule said of the same place before it was sure is not a separate event
    others = [
        member for member in members if member is not head and (member.rule, member.step) != (head.rule, head.step)
    ]
    # the worst fact is said first, in the incident's own message
    broken = next((other for other in others if other.rule == "non_finite_loss" and other.severity == "critical"), None)
    said = broken or follows
    story = [
        {
            "step": other.step,
            "rule": other.rule,
            "kind": other.kind,
            "severity": other.severity,
            "message": other.message,
        }
        for other in sorted(others, key=lambda item: (item.step, _rank(item), item.rule, item.key))
        if other is not broken
    ][:_TOLD]
    # an evaluation of weights that are not finite is a consequence, and has no cause or remedy of its own
    beside = [other for other in others if not (head.kind == other.kind == "nonfinite" and other.family == "eval")]
    return [
        msgspec.structs.replace(
            head,
            severity=SEVERITIES[worst],
            message=f"{said.message.rstrip('.')}. {head.message}" if said is not None else head.message,
            last_step=max(member.last_step for member in members if member.severity != "info"),
            evidence=head.evidence
            | {"began": min(member.step for member in members), "story": story}
            | ({_DIVERGED: broken.step} if broken is not None else {}),
            causes=_causes([head, *beside]),
            remedies=_remedies([head, *beside]),
            confidence=max(member.confidence for member in members if SEVERITIES.index(member.severity) == worst),
        )
    ]


def _is_root(member: Finding) -> bool:
    """Whether it is a proven fact of how the training is made, which lasts, and which worse may come of."""
    return member.severity != "info" and _stands(member) == _EFFECTS and bool(_proven(member))


def _causes(members: list[Finding]) -> list[str]:
    """Causes of all members, by how sure the rules are that name them and how early they name them."""
    weight: dict[str, float] = {}
    words: dict[str, str] = {}
    heard: set[tuple[str, str]] = set()
    proven = {label: member.causes[0] for member in members if (label := _proven(member))}
    for place, member in enumerate(members):
        if proven and member.severity == "info" and not _proven(member):
            continue  # what it names is a guess
        share = (1.0 if place == 0 else 0.5) * member.confidence * (0.4 if member.severity == "info" else 1.0)
        for at, cause in enumerate(member.causes):
            label = _label(cause)
            common = 0.0 if (member.rule, label) in heard else _COMMON.get(label, 1.0) if place else 1.0
            heard.add((member.rule, label))
            weight[label] = weight.get(label, 0.0) + share / (1 + at) * common
            if len(cause) > len(words.get(label, "")):
                words[label] = cause
    words |= proven
    return [words[label] for label in sorted(weight, key=lambda label: (label not in proven, -weight[label]))][:6]


def _proven(member: Finding) -> str:
    """The cause of a finding that has but one and is sure of it; empty if there is none."""
    sure = member.severity != "info" and member.confidence >= _SURE
    sure = len(member.causes) == 1 and (sure or bool(member.evidence.get(CERTAIN)))
    return _label(member.causes[0]) if sure else ""


_TOPICS = ("learning rate", "clip", "batch", "checkpoint", "layer", "warm-up", "data", "evaluat", "seed", "decay")


def _remedies(members: list[Finding]) -> list[str]:
    """Remedies of all members, of those that prove their cause alone where there are any; of several rules that give
    the same advice, the first one's.
    """
    members = [member for member in members if _proven(member)] or members
    kept: list[str] = []
    advised: set[str] = set()
    for member in members:
        fresh: set[str] = set()
        for remedy in member.remedies:
            topics = {topic for topic in _TOPICS if topic in remedy.lower()}
            if remedy not in kept and (not topics or not topics <= advised):
                kept.append(remedy)
                fresh |= topics
        advised |= fresh
    return kept[:6]
