"""What belongs together is told as one, the cause first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barograph.doctor.kernel.finding import SEVERITIES, Finding
from barograph.doctor.kernel.story import tell


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
