"""The story of an incident: one finding for what belongs together, the first cause before its consequences.

In:   findings of single rules.
Out:  incidents, the worst first.

Findings belong to one incident if they are of one chain (the training, or the machinery around it) and begin near each
other: within 50 logged rows, or 5% of what the run has come to, whichever is more; or if one is still seen when the
other begins, and both are of one kind or have the same first cause; or if one is a standing fault, a proven fact of
how the training is made that lasts, and the other a finding about losses, gradients, weights or evaluations behind it
that has no proof of another cause. The worst one
speaks for it, of equals one that has proof of its cause, else the one that began first; the others are in its evidence
as `story`, in the order in which they began, and its causes are those of all, the ones that several rules name first.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from barograph.doctor.kernel.finding import SEVERITIES, Finding

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
_EFFECTS = frozenset({"loss", "gradient", "model", "eval", "optimizer"})  # families of what may follow from it


def tell(
    findings: Iterable[Finding], spacing: float = 1.0, length: int = 0, excluded: frozenset[str] = frozenset()
) -> list[Finding]:
    """Incidents. spacing: steps between two logged rows; length: steps of the run so far. excluded: causes, by the
    words before their colon, that can't be.
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
    return in_order(_possible(item, excluded) for incident in incidents for item in _told(incident))


def _ongoing(incidents: list[list[Finding]], finding: Finding) -> list[Finding] | None:
    """The incident that was seen before and after this finding, and is of its kind or has its first cause; of an info
    finding that of its rule."""
    cause = finding.causes[0].partition(":")[0] if finding.causes else None
    for members in incidents:
        for member in members:
            stands = bool(member.evidence.get(STANDING)) and not _proven(finding)
            lasts = member.segment == finding.segment and member.step <= finding.step
            lasts = lasts and (stands or finding.step <= member.last_step)
            if finding.severity == "info":
                alike = member.rule == finding.rule
            elif stands and finding.family in _EFFECTS:
                alike = True
            else:
                alike = member.kind == finding.kind or (
                    cause is not None and bool(member.causes) and member.causes[0].startswith(cause)
                )
            if lasts and alike and member.severity != "info":
                return members
    return None


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


def _possible(finding: Finding, excluded: frozenset[str]) -> Finding:
    """A finding without causes that can't be; as it is where no other would be left."""
    kept = [cause for cause in finding.causes if cause.partition(":")[0] not in excluded]
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


def _told(members: list[Finding]) -> list[Finding]:
    """The incident's one finding. Info findings that nothing worse goes with stay info findings of their own."""
    members = _once(members)
    worst = min(SEVERITIES.index(member.severity) for member in members)
    if worst == SEVERITIES.index("info") or len(members) == 1:
        return members
    head = min(
        (member for member in members if SEVERITIES.index(member.severity) == worst),
        key=lambda item: (not _proven(item), item.step, _rank(item), item.rule, -item.last_step, item.key),
    )
    # what a rule said of the same place before it was sure is not a separate event
    others = [
        member for member in members if member is not head and (member.rule, member.step) != (head.rule, head.step)
    ]
    # the worst fact is said first, in the incident's own message
    broken = next((other for other in others if other.rule == "non_finite_loss" and other.severity == "critical"), None)
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
            message=f"{broken.message.rstrip('.')}. {head.message}" if broken is not None else head.message,
            last_step=max(member.last_step for member in members if member.severity != "info"),
            evidence=head.evidence
            | {"began": min(member.step for member in members), "story": story}
            | ({_DIVERGED: broken.step} if broken is not None else {}),
            causes=_causes([head, *beside]),
            remedies=_remedies([head, *beside]),
            confidence=max(member.confidence for member in members if SEVERITIES.index(member.severity) == worst),
        )
    ]


def _causes(members: list[Finding]) -> list[str]:
    """Causes of all members, by how sure the rules are that name them and how early they name them."""
    weight: dict[str, float] = {}
    words: dict[str, str] = {}
    heard: set[tuple[str, str]] = set()
    for place, member in enumerate(members):
        share = (1.0 if place == 0 else 0.5) * member.confidence * (0.4 if member.severity == "info" else 1.0)
        for at, cause in enumerate(member.causes):
            label = cause.partition(":")[0].strip().lower()
            common = 0.0 if (member.rule, label) in heard else _COMMON.get(label, 1.0) if place else 1.0
            heard.add((member.rule, label))
            weight[label] = weight.get(label, 0.0) + share / (1 + at) * common
            if len(cause) > len(words.get(label, "")):
                words[label] = cause
    proven = {label: member.causes[0] for member in members if (label := _proven(member))}
    words |= proven
    return [words[label] for label in sorted(weight, key=lambda label: (label not in proven, -weight[label]))][:6]


def _proven(member: Finding) -> str:
    """The cause of a finding that has but one and is sure of it; empty if there is none."""
    sure = len(member.causes) == 1 and member.confidence >= _SURE and member.severity != "info"
    return member.causes[0].partition(":")[0].strip().lower() if sure else ""


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
