"""Options: what is accepted, what wins, and what a user reads when something is wrong."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import barograph
from barograph.core.aliases import parse_aliases
from barograph.core.options import (
    ACCEPTS,
    KEMPNERFORGE_OPTIONS,
    NO_OPTIONS,
    PREFIX,
    SUROGATE_OPTIONS,
    ConfigError,
    Settings,
    load,
    options_table,
)

DOCUMENTATION = Path(__file__).parent.parent / "docs" / "reference" / "options.md"

# The two blocks of the Surogate metrics guide, as they are there.
SUROGATE_BACKENDS = """\
# config.yaml
report_to: wandb              # Single backend
report_to: [wandb, aim]       # Multiple backends

# Weights & Biases options
wandb_project: my-project
wandb_name: my-run

# Aim options
aim_experiment: my-experiment
aim_repo: /path/to/aim/repo
aim_name: my-run
"""
SUROGATE_LOG_FILE = "log_file: ./output/training.json  # Default: {output_dir}/training.json\n"

KEMPNERFORGE_METRICS = """\
metrics:
  log_interval: 10
  enable_wandb: true
  enable_tensorboard: true
  wandb_project: kempnerforge
  wandb_run_name: ""
  wandb_run_id: ""
  tensorboard_dir: tb_logs
"""


def from_yaml(folder: Path, text: str) -> Settings:
    file = folder / "options.yaml"
    file.write_text(text)
    return load({}, {}, file)


def complaint(*arguments: Any, **keywords: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*arguments, **keywords)
    return str(caught.value)


# -- the list


def test_the_list_of_options_is_frozen() -> None:
    assert [field.name for field in dataclasses.fields(Settings)] == [
        "project", "name", "id", "tags", "notes", "group", "job_type",
        "dir", "output_dir", "log_file",
        "resume", "resume_step",
        "sidecar",
        "console", "verbosity", "total_steps", "total_tokens",
        "strict", "git",
        "doctor", "thresholds", "silence", "blackbox", "blackbox_steps", "stop_on",
        "alerts", "notify", "alert_findings", "alert_cooldown", "alert_digest", "alert_recovery",
        "flops_formula", "peak_tflops", "machine", "machine_seconds", "watchdog", "watchdog_seconds",
        "ranks",
        "price_per_gpu_hour", "prices", "metrics_port",
        "report_to", "wandb_project", "wandb_name", "aim_experiment", "aim_repo", "aim_name",
        "aim_run_id", "mlflow_tracking_uri", "mlflow_experiment", "mlflow_name", "mlflow_run_id",
        "trackio_project", "trackio_name", "trackio_space", "trackio_run_id", "otel_endpoint",
        "aliases",
        "log_interval", "enable_wandb", "enable_tensorboard", "wandb_run_name", "wandb_run_id", "tensorboard_dir",
        "tensorboard_layout",
        "wide_threshold", "store", "media_mb", "sync_seconds",
    ]  # fmt: skip


def test_every_option_is_documented_as_it_is() -> None:
    assert options_table() in DOCUMENTATION.read_text(), (
        "replace the table in docs/reference/options.md with: "
        'python -c "from barograph.core.options import options_table; print(options_table())"'
    )


def test_the_options_of_the_documents_exist() -> None:
    assert set(SUROGATE_OPTIONS) | set(KEMPNERFORGE_OPTIONS) <= set(ACCEPTS)


def test_every_default_is_accepted_as_an_argument() -> None:
    defaults = dataclasses.asdict(Settings())
    assert load(defaults, {}) == Settings() == load(None, {})


# -- what wins


def test_prices_come_from_a_mapping_a_variable_and_a_file(tmp_path: Path) -> None:
    wanted = {"H100": 2.5, "kwh": 0.3}
    assert load({"prices": wanted}, {}).prices == wanted
    assert load({}, {"BAROGRAPH_PRICES": " H100=2.5, kwh=0.3"}).prices == wanted
    assert from_yaml(tmp_path, "prices:\n  H100: 2.5\n  kwh: 0.3\n").prices == wanted


@pytest.mark.parametrize("prices", ["H100", {"H100": "cheap"}, {"H100": -1}, {"": 1.0}, {3: 1.0}, {"H100": True}, [1]])
def test_prices_that_are_none_are_refused_with_an_example(prices: Any) -> None:
    assert "such as H100=2.5,kwh=0.3" in complaint({"prices": prices}, {})


def test_aliases_come_from_a_mapping_a_variable_and_a_file(tmp_path: Path) -> None:
    wanted = {"train/loss": ["my_loss", "ce"], "train/duration_ms": {"name": "iter_s", "factor": 1000.0}}
    assert load({"aliases": wanted}, {}).aliases == wanted
    text = "train/loss=my_loss, train/duration_ms=iter_s*1000,train/loss=ce"
    assert load({}, {"BAROGRAPH_ALIASES": text}).aliases == wanted
    yaml = "aliases:\n  train/loss: [my_loss, ce]\n  train/duration_ms: {name: iter_s, factor: 1000}\n"
    assert from_yaml(tmp_path, yaml).aliases == wanted
    assert parse_aliases(wanted).keys() == {"my_loss", "ce", "iter_s"}


@pytest.mark.parametrize(
    "aliases",
    ["loss", [1], {"train/loss": 3}, {"": "x"}, {"train/loss": ""}, {"train/loss": [["x"]]}, {1: "x"},
     {"train/loss": {"factor": 2}}, {"train/loss": {"name": "x", "factor": "2"}}, {"a": {"name": "x", "by": 2}},
     {"a": {"name": "x", "factor": math.inf}}],
)  # fmt: skip
def test_aliases_that_are_none_are_refused_with_an_example(aliases: Any) -> None:
    assert "such as train/loss=my_loss" in complaint({"aliases": aliases}, {})


@pytest.mark.parametrize("text", ["my_loss", "a=", "=b", "a=b*c", "a=*2"])
def test_a_variable_of_aliases_that_is_none_is_refused(text: str) -> None:
    assert "such as train/loss=my_loss" in complaint({}, {"BAROGRAPH_ALIASES": text})


def test_an_argument_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "o.yaml"
    file.write_text("project: file\nname: file\nnotes: file\n")
    settings = load({"project": "argument"}, {"BAROGRAPH_PROJECT": "e", "BAROGRAPH_NAME": "environment"}, file)
    assert (settings.project, settings.name, settings.notes) == ("argument", "environment", "file")


def test_none_and_an_empty_variable_count_as_not_given(tmp_path: Path) -> None:
    file = tmp_path / "o.yaml"
    file.write_text("project: file\nname:\n")
    assert load({"project": None}, {"BAROGRAPH_PROJECT": ""}, file) == Settings(project="file")


def test_the_file_is_named_by_argument_before_variable(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(f"project: {name}")
    environ = {"BAROGRAPH_CONFIG": str(tmp_path / "c")}
    assert load({"config_file": tmp_path / "b"}, environ, tmp_path / "a").project == "a"
    assert load({"config_file": tmp_path / "b"}, environ).project == "b"
    assert load({}, environ).project == "c"


def test_every_variable_that_the_product_names_is_known_to_a_run() -> None:
    root = Path(__file__).parents[1]
    pages = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "src").rglob("*.py")]
    named = {name for page in pages for name in re.findall(r"\bBAROGRAPH_[A-Z][A-Z_]*[A-Z]\b", page.read_text())}
    of_options = {PREFIX + name.upper() for name in ACCEPTS}
    assert {"BAROGRAPH_DIR", "BAROGRAPH_NOTEBOOK", "BAROGRAPH_TOKEN"} <= named <= of_options | {*NO_OPTIONS}
    # none of them keeps a run from beginning
    load({}, environ=dict.fromkeys(NO_OPTIONS[1:], "a-word-of-sixteen-letters"))


def test_the_process_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAROGRAPH_PROJECT", "from-environment")
    assert load({}).project == "from-environment"


# -- the documents' files


def test_the_yaml_of_the_run_logger_loads_as_it_stands(tmp_path: Path) -> None:
    assert from_yaml(tmp_path, SUROGATE_BACKENDS) == Settings(
        report_to=("wandb", "aim"),  # the second of two equal keys, as YAML has it
        wandb_project="my-project",
        wandb_name="my-run",
        aim_experiment="my-experiment",
        aim_repo="/path/to/aim/repo",
        aim_name="my-run",
    )
    assert from_yaml(tmp_path, SUROGATE_LOG_FILE).log_file == "./output/training.json"
    assert from_yaml(tmp_path, "report_to: wandb\n").report_to == ("wandb",)


def test_the_step_trackers_options_load_flat_and_nested(tmp_path: Path) -> None:
    nested = from_yaml(tmp_path, KEMPNERFORGE_METRICS)
    assert nested.enable_wandb and nested.wandb_project == "kempnerforge"
    assert nested.backends == ("wandb", "tensorboard")
    flat = "\n".join(line.strip() for line in KEMPNERFORGE_METRICS.splitlines()[1:])
    assert from_yaml(tmp_path, flat) == nested


def test_a_section_wins_over_the_top(tmp_path: Path) -> None:
    settings = from_yaml(tmp_path, "log_interval: 5\nproject: top\nmetrics: {log_interval: 7}\n")
    assert (settings.log_interval, settings.project) == (7, "top")


def test_a_shared_file_gives_its_section_and_the_documents_options_only(tmp_path: Path) -> None:
    shared = """\
model: llama
dir: /somewhere/else
report_to: wandb
metrics: {accuracy: true, log_interval: 3}
barograph: {project: mine, metrics: {enable_wandb: true}}
"""
    assert from_yaml(tmp_path, shared) == Settings(
        project="mine", report_to=("wandb",), log_interval=3, enable_wandb=True
    )
    assert from_yaml(tmp_path, "metrics: [accuracy]\nbarograph:\n") == Settings()


def test_backends_are_named_once() -> None:
    assert load({"report_to": ["wandb", "aim"], "enable_wandb": True}, {}).backends == ("wandb", "aim")
    assert load({"report_to": "none"}, {}).backends == ()


# -- what is refused, and how


@pytest.mark.parametrize("where", ["argument", "environment", "file", "section"])
def test_an_unknown_option_names_the_nearest_and_its_place(tmp_path: Path, where: str) -> None:
    file = tmp_path / "o.yaml"
    if where == "argument":
        said = complaint({"reprot_to": "wandb"}, {})
        place, nearest = "arguments", "report_to"
    elif where == "environment":
        said = complaint({}, {"BAROGRAPH_REPROT_TO": "wandb"})
        place, nearest = "environment", "BAROGRAPH_REPORT_TO"
    else:
        file.write_text("reprot_to: wandb" if where == "file" else "barograph: {reprot_to: wandb}")
        said = complaint({}, {}, file)
        place, nearest = str(file), "report_to"
    assert place in said and repr(nearest) in said and said.count("\n") == 0


def test_a_misspelled_section_names_the_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'metrics'"):
        from_yaml(tmp_path, "metric: {log_interval: 3}")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("strict", 1), ("strict", "true"), ("log_interval", 0), ("log_interval", 2.5), ("log_interval", True),
        ("log_interval", "10"), ("verbosity", 2), ("verbosity", -3), ("project", ""), ("project", " "),
        ("project", 7), ("name", b"x"), ("dir", 3), ("dir", "a\0b"), ("tags", [1]), ("tags", {"a": 1}),
        ("console", "loud"), ("console", True), ("report_to", "wandbb"), ("report_to", ["wandb", 3]),
        ("sync_seconds", 0), ("sync_seconds", math.nan), ("sync_seconds", math.inf), ("total_steps", -1),
        ("total_tokens", 2**63), ("total_tokens", 1e300), ("price_per_gpu_hour", -0.5), ("resume", 3),
        ("total_steps", "1e999"), ("total_steps", "e"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_one_sentence(option: str, value: Any) -> None:
    said = complaint({option: value}, {})
    assert said.startswith(f"{option} is ") and "the arguments" in said and str(ACCEPTS[option]) in said
    assert said.endswith(".") and "\n" not in said


def test_a_hostile_value_still_gives_one_short_line() -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "a Hostile" in complaint({"strict": Hostile()}, {})
    assert len(complaint({"strict": "x" * 100_000}, {})) < 300
    assert "\n" not in complaint({"strict": "a\nb"}, {})
    assert "\n" not in complaint({"a\nb": 1}, {})


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: [", "not valid YAML: line 1"),
        ("- a\n- b", "has to hold lines of option: value"),
        ("just words", "has to hold lines of option: value"),
        ("metrics: 3", "accepts a section of options"),
        ("barograph: [1]", "accepts a section of options"),
        ("project: !!python/object:os.system x", "not valid YAML"),
        ("project: 2025-99-99", "not valid YAML"),
        ("[" * 1500, "not valid YAML"),
        ("1: 2", "There is no option 1"),
        ("name: 2024", "name is 2024"),
        ("project: \x07", "not valid YAML"),
    ],
)
def test_a_bad_file_is_one_sentence_that_names_it(tmp_path: Path, text: str, part: str) -> None:
    file = tmp_path / "o.yaml"
    file.write_text(text)
    said = complaint({}, {}, file)
    assert part in said and str(file) in said and "\n" not in said and said.endswith(".")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in complaint({}, {}, tmp_path / "none.yaml")
    assert "cannot be read" in complaint({}, {}, tmp_path)
    assert "accepts a path" in complaint({"config_file": 3}, {})


def test_an_empty_file_holds_no_options(tmp_path: Path) -> None:
    assert from_yaml(tmp_path, "") == from_yaml(tmp_path, "# nothing\n") == Settings()


@pytest.mark.parametrize("option", ["flush_seconds", "queue_megabytes", "seal_points"])
def test_an_option_that_is_gone_is_refused_with_what_to_do(tmp_path: Path, option: str) -> None:
    sentence = r"The option '\S+' \(in .+\) is gone, as .+; leave it out\."
    for arguments in ({option: 1}, {}):
        environment = {} if arguments else {f"BAROGRAPH_{option.upper()}": "1"}
        assert re.fullmatch(sentence, complaint(arguments, environment))
    assert not hasattr(load({}, {}), option)


# -- values


def test_values_arrive_in_the_options_own_type(tmp_path: Path) -> None:
    settings = load(
        {
            "total_tokens": 1e10,
            "sync_seconds": 2,
            "tags": ["a", "b", "a", ""],
            "dir": tmp_path,
            "log_file": "~/x.json",
            "resume": True,
            "verbosity": -1,
        },
        {},
    )
    assert settings.total_tokens == 10_000_000_000 and type(settings.total_tokens) is int
    assert settings.sync_seconds == 2.0 and type(settings.sync_seconds) is float
    assert settings.tags == ("a", "b")
    assert settings.dir == str(tmp_path)
    assert settings.log_file == os.path.expanduser("~/x.json")
    assert settings.resume is True
    assert load({"total_steps": 2**62 + 1}, {}).total_steps == 2**62 + 1
    assert load({"tags": {"b", "a"}}, {}).tags == ("a", "b")
    assert load({"tags": "one, two"}, {}).tags == ("one, two",)


def test_numpy_numbers_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    settings = load({"total_steps": numpy.int32(5), "sync_seconds": numpy.float32(0.5)}, {})
    assert settings.total_steps == 5 and type(settings.total_steps) is int
    assert settings.sync_seconds == 0.5 and type(settings.sync_seconds) is float
    assert "strict is" in complaint({"strict": numpy.bool_(True)}, {})


def test_yaml_words_that_yaml_turns_into_something_else(tmp_path: Path) -> None:
    assert from_yaml(tmp_path, "console: off").console == "none"
    assert from_yaml(tmp_path, "sync_seconds: 1e-1").sync_seconds == 0.1
    assert from_yaml(tmp_path, "total_tokens: 1e10").total_tokens == 10**10


def test_environment_text_is_read_by_the_options_type() -> None:
    environ = {
        "BAROGRAPH_STRICT": " Yes ",
        "BAROGRAPH_GIT": "0",
        "BAROGRAPH_TAGS": "a, b,,c",
        "BAROGRAPH_REPORT_TO": "wandb,aim",
        "BAROGRAPH_LOG_INTERVAL": "1_000",
        "BAROGRAPH_TOTAL_TOKENS": "1e10",
        "BAROGRAPH_PRICE_PER_GPU_HOUR": ".5",
        "BAROGRAPH_RESUME": "true",
        "BAROGRAPH_NAME": "1",
        "PATH": "/bin",
    }
    assert load({}, environ) == Settings(
        strict=True,
        git=False,
        tags=("a", "b", "c"),
        report_to=("wandb", "aim"),
        log_interval=1000,
        total_tokens=10**10,
        price_per_gpu_hour=0.5,
        resume=True,
        name="1",
    )
    assert "BAROGRAPH_STRICT" in complaint({}, {"BAROGRAPH_STRICT": "maybe"})


_texts = st.text(st.characters(exclude_characters="\0"), max_size=30)
_numbers = st.one_of(
    st.integers().map(str), st.floats().map(str), st.sampled_from(["1__0", "0x10", "٣", "1e5", "-", "."])
)


@given(option=st.sampled_from(sorted(ACCEPTS)), text=st.one_of(_texts, _numbers))
@example(option="log_interval", text="9" * 5000)
@example(option="sync_seconds", text="1e999")
@hypothesis_settings(deadline=None, max_examples=300)
def test_any_environment_text_is_a_fitting_value_or_one_sentence(option: str, text: str) -> None:
    try:
        value = getattr(load({}, {f"BAROGRAPH_{option.upper()}": text}), option)
    except ConfigError as error:
        assert re.fullmatch(rf"{option} is .* in the environment variable \S+, but it accepts .*\.", str(error))
    else:
        # what was read is a value that the option accepts as an argument too, and stays what it is
        assert getattr(load({option: value}, {}), option) == value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            assert ACCEPTS[option].low <= value <= ACCEPTS[option].high


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "log_interval": st.integers(1, 2**63 - 1),
            "verbosity": st.integers(-2, 1),
            "strict": st.booleans(),
            "sync_seconds": st.floats(0.001, 3600),
            "tags": st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), unique=True, min_size=1).map(tuple),
            "name": _texts.filter(lambda text: text and text.isprintable()),
        },
    )
)
@hypothesis_settings(deadline=None, max_examples=100)
def test_the_environment_gives_back_what_was_written_into_it(values: dict[str, Any]) -> None:
    environ = {
        f"BAROGRAPH_{name.upper()}": ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in values.items()
    }
    assert load({}, environ) == load(values, {})


@given(st.binary(max_size=200))
@hypothesis_settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_settings_or_one_sentence(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "any.yaml"
    file.write_bytes(content)
    try:
        load({}, {}, file)
    except ConfigError as error:
        assert "\n" not in str(error)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().project = "x"  # type: ignore[misc]


def test_yaml_is_not_imported_without_a_file() -> None:
    code = "import sys, barograph.core.options as c; c.load({}, {}); sys.exit('yaml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ | {"BAROGRAPH_CONFIG": ""}).returncode == 0


@pytest.mark.parametrize("name", ["mode", "reinit", "save_code", "entity", "settings", "zzz"])
def test_a_name_that_is_like_none_of_ours_gets_no_misleading_hint(name: str) -> None:
    said = complaint({name: "x"}, {})
    assert repr(name) in said and "nearest" not in said and "docs/reference/options.md" in said


def test_words_of_earlier_versions_are_read_as_todays() -> None:
    assert load({"flops_formula": "nanogpt"}, {}).flops_formula == "palm_non_embedding"
    assert load({}, {"BAROGRAPH_FLOPS_FORMULA": "nanogpt"}).flops_formula == "palm_non_embedding"


@pytest.mark.parametrize("name", ["dir", "output_dir"])
@pytest.mark.parametrize("address", ["clickhouse://u@host:8123/db", "s3://bucket/runs"])
def test_a_training_makes_no_folder_of_an_address_s_name(
    name: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="given as store"):
        barograph.init(project="p", **{name: address})
    monkeypatch.setenv(f"BAROGRAPH_{name.upper()}", address)
    with pytest.raises(ConfigError, match="given as store"):
        barograph.init(project="p")
    assert not list(tmp_path.iterdir())
