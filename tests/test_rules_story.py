"""What belongs together is told as one, the cause first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barograph.doctor.kernel.finding import SEVERITIES, Finding
from barograph.doctor.kernel.registry import rule_classes
from barograph.doctor.kernel.story import STANDING, tell


def finding(
    rule: str, kind: str, step: int, severity: str = "warning", family: str = "loss", **about: object
) -> Finding:
    return Finding(rule=rule, family=family, kind=kind, severity=severity, step=step, message=rule, **about)  # type: ignore[arg-type]


def test_a_spike_that_ends_in_nan_is_one_incident_with_its_cause_first() -> None:
    told = tell(
        [
            finding("non_finite_loss", "nonfinite", 120, "critical", confidence=1.0, causes=["non-finite gradient: x"]),
            finding(
                "gradient_spike", "spike", 112, family="gradient", causes=["bad batch: y", "non-finite gradient: z"]
            ),
            finding("loss_spike", "spike", 113, causes=["bad batch: w"]),
            finding("plateau", "plateau", 5000),
        ]
    )
    assert [(one.rule, one.step) for one in told] == [("non_finite_loss", 120), ("plateau", 5000)]
    assert [one["rule"] for one in told[0].evidence["story"]] == ["gradient_spike", "loss_spike"]
    assert told[0].evidence["began"] == 112 and told[0].causes[0].startswith("non-finite gradient")


def test_what_a_rule_says_twice_of_a_step_is_told_once() -> None:
    twice = [finding("slow", "slowdown", 40, one, "speed", key=one) for one in ("info", "warning")]
    (told,) = tell([*twice, finding("slow", "slowdown", 40, "info", "speed", key="third")])
    assert told.severity == "warning" and "story" not in told.evidence
    (told,) = tell([finding("a", "plateau", 40, "info", key="one"), finding("a", "plateau", 40, "info", key="two")])
    assert told.severity == "info"


def test_a_slow_disk_is_not_the_cause_of_a_spike() -> None:
    told = tell([finding("loss_spike", "spike", 100), finding("input_bound", "input_bound", 100, family="speed")])
    assert len(told) == 2


def test_info_findings_stay_single_and_a_storm_of_one_rule_is_one_finding() -> None:
    assert len(tell([finding("a", "plateau", 1, "info"), finding("b", "overfit", 2, "info")])) == 2
    told = tell([finding("loss_spike", "spike", 1000 * step, "info") for step in range(100)])
    assert len(told) == 1 and told[0].last_step == 99_000 and told[0].evidence["times"] == 100


@given(
    st.lists(
        st.tuples(st.sampled_from(["spike", "nonfinite", "slowdown", "odd"]), st.integers(0, 500),
                  st.sampled_from(SEVERITIES), st.sampled_from(["loss", "speed"])),
        max_size=30,
    ),
    st.randoms(),
)  # fmt: skip
def test_the_order_of_finding_does_not_matter_and_nothing_bad_is_dropped(rows: list, random: object) -> None:
    made = [
        finding(f"r{at % 5}", kind, step, severity, family, key=str(at))
        for at, (kind, step, severity, family) in enumerate(rows)
    ]
    told = tell(made)
    random.shuffle(made)  # type: ignore[attr-defined]
    again = tell(made)
    assert [(one.identity, one.severity) for one in told] == [(one.identity, one.severity) for one in again]
    worst = min((SEVERITIES.index(one.severity) for one in made), default=None)
    assert (SEVERITIES.index(told[0].severity) if told else None) == worst
    named = {(one.rule, one.step) for one in told} | {
        (s["rule"], s["step"]) for one in told for s in one.evidence.get("story", ())
    }
    if len(made) <= 12:
        assert named >= {(one.rule, one.step) for one in made if one.severity == "critical"}


def test_the_first_findings_own_order_of_causes_counts_and_a_rule_is_heard_once() -> None:
    head = finding("early_growth", "update_ratio", 100, confidence=0.8, causes=["learning rate too high", "no warm-up"])
    assert tell([head, finding("x", "divergence", 110)])[0].causes[0] == "learning rate too high"
    once = finding("gradient_scale_jump", "exploding", 100, confidence=0.8, causes=["scaled wrongly"])
    storm = [finding("gradient_spike", "spike", 101 + at, confidence=0.9, causes=["bad batch"]) for at in range(5)]
    assert tell([once, *storm])[0].causes == ["scaled wrongly", "bad batch"]


def proven(rule: str, step: int, cause: str, family: str = "data", **about: object) -> Finding:
    return finding(rule, "data", step, family=family, confidence=0.95, causes=[cause], **about)


def test_what_is_proven_of_the_training_explains_what_comes_long_after_it() -> None:
    later = finding("overfitting", "overfit", 1000, family="eval", confidence=0.85, causes=["overfitting", "bad batch"])
    (told,) = tell([proven("sorted_targets", 1, "data sorted"), later])
    assert told.rule == "sorted_targets" and told.causes == ["data sorted", "overfitting", "bad batch"]
    # a rule that has no proof this time, and a proof of what happened once, explain nothing later
    doubtful = finding("sorted_targets", "data", 1, family="data", confidence=0.7, causes=["data sorted"])
    assert len(tell([doubtful, later])) == 2
    assert len(tell([proven("non_finite_input", 1, "bad batch"), later])) == 2


def test_a_fault_of_evaluations_explains_what_is_found_in_evaluations_alone() -> None:
    fault = proven("other_labels", 20, "labels shifted", family="eval")
    (told,) = tell([fault, finding("overfitting", "overfit", 900, family="eval", causes=["overfitting"])])
    assert told.causes[0] == "labels shifted"
    spike = finding("loss_spike", "spike", 900, causes=["bad batch"])
    assert [one.rule for one in tell([fault, spike])] == ["other_labels", "loss_spike"]


def test_what_the_watch_has_seen_is_the_first_cause_though_it_alone_would_not_warn() -> None:
    look = finding("repeated_examples", "repeated_data", 2, "info", "data", causes=["data exhausted"], confidence=0.5)
    overfit = finding("overfitting", "overfit", 40, family="eval", confidence=0.85, causes=["overfitting"])
    assert tell([look, overfit])[0].causes[0] == "overfitting"
    look.evidence = {"certain": True}
    (told,) = tell([look, overfit])
    assert (told.rule, told.severity, told.causes[0]) == ("overfitting", "warning", "data exhausted")


def test_beside_a_proof_an_info_finding_adds_no_cause() -> None:
    guess = finding("initial_loss", "logits", 1, "info", causes=["bad initialisation"], confidence=0.4)
    (told,) = tell([proven("frozen_group", 1, "layer frozen", family="model"), guess])
    assert told.causes == ["layer frozen"]


def test_a_lasting_fault_of_unknown_cause_is_one_with_the_proof_of_its_kind_that_comes_later() -> None:
    reads = finding("padding_read", "padding", 0, family="data", confidence=0.9, causes=["padding is read"],
                    evidence={"standing": True})  # fmt: skip
    mask = finding("padding_mask", "padding", 120, family="data", confidence=0.95, causes=["padding mask inverted"])
    (told,) = tell([reads, mask], length=200)
    assert told.rule == "padding_mask" and told.causes == ["padding mask inverted", "padding is read"]


def test_a_cause_that_was_measured_not_to_be_is_left_out_unless_it_is_proven() -> None:
    asked: list[tuple[str, bool]] = []

    def impossible(one: Finding, cause: str, sure: bool) -> bool:
        asked.append((cause, sure))
        return not sure and cause in ("clipping off", "overfitting")

    exploding = finding("exploding_gradient", "exploding", 9, causes=["clipping off", "learning rate too high"])
    (told,) = tell([exploding], impossible=impossible)
    assert told.causes == ["learning rate too high"]
    (told,) = tell([finding("overfitting", "overfit", 9, causes=["overfitting"])], impossible=impossible)
    assert told.causes == ["overfitting"]  # nothing else would be left
    tell([proven("x", 9, "clipping off")], impossible=impossible)
    assert asked[-1] == ("clipping off", True)


def test_a_rule_proves_something_of_the_training_or_of_its_evaluations_if_anything() -> None:
    kinds = {rule.proves for rule in rule_classes().values()}
    assert kinds == {"", "training", "evaluation"}


def test_what_a_fault_that_still_lasts_may_have_done_is_one_with_it() -> None:
    grows = finding("early_growth", "update_ratio", 1, family="optimizer", confidence=0.9, last_step=240,
                    causes=["learning rate too high: a"])  # fmt: skip
    late = finding("not_learning", "not_learning", 177, causes=["gradients vanish", "learning rate too high: b"])
    (told,) = tell([grows, late])
    assert told.rule == "early_growth" and told.causes[0].startswith("learning rate too high")
    assert len(tell([grows, finding("plateau", "plateau", 177, causes=["labels shuffled"])])) == 2
    grows.last_step = 100
    assert len(tell([grows, late])) == 2


def test_a_proven_fact_of_how_the_training_is_made_speaks_for_what_comes_of_it() -> None:
    """As gravely, and behind the words of the worst: a sum of losses, behind which attention breaks down."""
    summed = finding(
        "loss_weight", "exploding", 0, causes=["loss summed: over 32 targets"], confidence=0.95, evidence={STANDING: 1}
    )
    about = {"causes": ["learning rate too high: x", "attention temperature: y"], "confidence": 0.9}
    broken = finding("attention_logits", "attention", 112, "critical", "model", **about)
    (told,) = tell([summed, broken], length=160)
    assert (told.rule, told.severity, told.step) == ("loss_weight", "critical", 0)
    assert told.message == "attention_logits. loss_weight"
    assert told.causes[0].startswith("loss summed") and "story" in told.evidence
