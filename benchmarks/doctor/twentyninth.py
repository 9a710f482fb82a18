"""The twenty-ninth half of the fault bench: six programs, their faults and their healthy variants.

In:   a program's settings.
Out:  rows for the tables of `faults.py` and `healthy.py`, and steps for `traces.py`.

Six programs of the families of the twenty-eighth half: noise taken off years of weather stations with torch's own
average, adapters beside layers of eight levels, preferences of a recurrent florist against a column of likelihoods
that is made once, two towers for seashells and notes under a sigmoid, a language model in float16 with a scaler over
packed games, rare galaxies on two workers under DistributedDataParallel; each as another ordinary engineer writes it.
Most faults are of the fifteen kinds that the fourteenth half has, each as the line that a person gets wrong in that
program; those in `REPORTED` are others that people report of such trainings. Who wrote them had read no rule, and did
not look at what the doctor says. A fault is called by any name that a person would give it, and every kind of finding
that would be right of it is right; the names that the twenty-eighth half gives are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import eighteenth
import ninth
import sixteenth
import twentyeighth
from ninth import Row, Settings
from twentysixth import several

PROGRAMS = ("climates",)
CLIMATES, *_ = PROGRAMS
STEPS = dict.fromkeys(PROGRAMS, 160)
REPORTED = frozenset({
    "times_in_thousandths_for_the_average", "guided_though_zones_were_never_hidden",
})  # fmt: skip
"""Faults that people report, outside of the fifteen kinds."""

# fmt: off

# -- settings that faults share with the healthy variant that they are seen against ------------------------------

PARTS: Settings = {
    CLIMATES: {"batch": 12, "micro_batches": 2},
}
FOUR_PARTS: Settings = {
    CLIMATES: {"batch": 8, "micro_batches": 4},
}
DROPPED: Settings = {
    CLIMATES: {"dropout": 0.2},
}
COPIED: Settings = {
    CLIMATES: {"years": 4},
}
TRAILING: Settings = {CLIMATES: {"ema_decay": 0.98}}
KEPT: Settings = {CLIMATES: {"freeze": "months"}}

# -- names that a person would give, beside those of the halves before ----------------------------------------------

SUMMED = several(*twentyeighth.SUMMED, "loss summed over a year", "summed over months")
MEANED = twentyeighth.MEANED
GRAPHS = several(*twentyeighth.GRAPHS, "loss appended without item")
TWICE = several(*twentyeighth.TWICE)
SHIFTED = several(*twentyeighth.SHIFTED)
FLIPPED = several(*twentyeighth.FLIPPED)
FROZEN = several(*twentyeighth.FROZEN, "freeze inverted", "condition inverted", "all but the named part frozen")
TIE = several(*twentyeighth.TIE)
SORTED = several(*twentyeighth.SORTED)
LEAK = several(*twentyeighth.LEAK, "years of one station on both sides")
FIGURES = several(*twentyeighth.FIGURES, "fahrenheit and celsius confused")
UNFITTED = several(*twentyeighth.UNFITTED, "scaler fitted on a part", "scaler fitted on one class", "statistics of a part of the data")
BUFFERS = twentyeighth.BUFFERS
STEPPED = twentyeighth.STEPPED
ADDED = twentyeighth.ADDED
IN_EVAL = twentyeighth.IN_EVAL
IN_TRAINING = twentyeighth.IN_TRAINING
AVERAGE = several(*twentyeighth.AVERAGE)
NOT_BACK = several(*twentyeighth.NOT_BACK)
RESUMED = twentyeighth.RESUMED
ANEW = twentyeighth.ANEW
SAME = several(*twentyeighth.SAME)

# -- faults that the bench has, in these programs: programs, and what is set there --------------------------------

KNOWN_FAULTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}

# -- faults that are new: cause, kinds, where it begins, settings, what it is compared with, other names ------------

OF_KIND: Mapping[str, tuple[str, str, str, Settings, str, tuple[str, ...]]] = {
    "sum": ("loss summed", ninth.OF_SUMS, "start", {}, "plain", SUMMED),
    "graph": ("no_grad missing", "memory eval data config", "start", {}, "memory_steady", GRAPHS),
    "softmax": ("softmax twice", ninth.OF_SOFTMAX, "start", {}, "plain", TWICE),
    "label": ("labels shifted", ninth.OF_LABELS, "start", {}, "plain", SHIFTED),
    "frozen": ("layer frozen", ninth.OF_FROZEN, "start", {}, "plain", FROZEN),
    "tie": ("weight tying broken", ninth.OF_TIE, "start", {}, "plain", TIE),
    "order": ("data sorted", ninth.OF_ORDER, "start", {}, "plain", SORTED),
    "leak": ("validation leak", ninth.OF_LEAK, "start", COPIED, "relatives_on_one_side_alone", LEAK),
    "figures": ("inputs not normalised", ninth.OF_STATISTICS, "start", {}, "plain", FIGURES),
    "steps": ("scheduler stepped per micro-batch", ninth.OF_SCHEDULE, "start", PARTS, "two_micro_batches_each",
              STEPPED),
    "added": ("gradient accumulation scaled wrongly", ninth.OF_PARTS, "start", FOUR_PARTS, "four_micro_batches_each",
              ADDED),
    "eval": ("evaluation mode left on", ninth.OF_EVAL_MODE, "start", DROPPED, "dropout_that_is_named", IN_EVAL),
    "train": ("evaluation in training mode", ninth.OF_TRAINING_MODE, "start", DROPPED, "dropout_that_is_named",
              IN_TRAINING),
    "average": ("averaged weights not updated", ninth.OF_AVERAGE, "start", {}, "plain", AVERAGE),
    "swap": ("averaged weights not swapped back", eighteenth.OF_SWAP, "start", TRAILING, "slow_average_as_named",
             NOT_BACK),
    "resume": ("optimizer state lost", ninth.OF_RESUME, "resume", {}, "plain", RESUMED),
    "buffers": ("normalisation statistics stale", ninth.OF_STATISTICS, "start", {}, "plain", BUFFERS),
    "ranks": ("same data on all ranks", sixteenth.OF_RANKS, "start", {}, "plain", SAME),
}
ALSO_ANEW: dict[str, Any] = {"also": ANEW}
OF_FIFTEEN: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("sum", "squares_of_a_year_summed", CLIMATES, "squared errors are summed over months and quantities", {}),
    ("graph", "sampled_losses_appended_as_they_are", CLIMATES,
     "the average is judged with gradients on, and losses are kept", {}),
    ("label", "zones_counted_from_one_in_the_station_file", CLIMATES,
     "zones of the training are counted from one, and those of the evaluation from nought", {}),
    ("frozen", "freeze_condition_is_the_wrong_way_round", CLIMATES,
     "a part is named that is not to learn, and it is the one that does", {"of": KEPT, "compare": "named_part_is_kept"}),
    ("order", "stations_read_zone_by_zone", CLIMATES, "stations come zone after zone", {}),
    ("leak", "years_of_a_station_on_both_sides", CLIMATES, "years of one station come to lie on both sides", {}),
    ("figures", "held_stations_in_fahrenheit", CLIMATES,
     "warmth of the evaluation is in Fahrenheit, and that of the training in Celsius", {}),
    ("figures", "scaler_fitted_on_the_first_hundred_stations", CLIMATES,
     "means and deviations are those of the first hundred years of a sorted file, which are of deserts",
     {"kinds": " exploding plateau not_learning clipping spike learning_rate", "also": UNFITTED}),
    ("steps", "cosine_stepped_in_each_micro_batch", CLIMATES, "the schedule is stepped with each part of an update",
     {}),
    ("added", "micro_losses_backed_undivided", CLIMATES, "losses of parts are not divided by their number", {}),
    ("eval", "eval_for_the_sampler_and_never_train_again", CLIMATES,
     "the net is not set back to training behind an evaluation", {}),
    ("train", "averaged_module_left_in_training_mode", CLIMATES,
     "the averaged module is judged in training mode, with dropout", {}),
    ("average", "update_parameters_given_the_average", CLIMATES,
     "the average is brought up to date by itself: it stays at its start", {}),
    ("average", "averaged_model_without_its_ema_fn", CLIMATES,
     "the average is over all steps alike, and not over the last ones: it has the begin in it", {}),
    ("swap", "net_itself_made_the_average_to_draw", CLIMATES,
     "the average is loaded into the net to draw, and the training goes on from it", {}),
    ("resume", "weather_and_its_average_are_all_that_is_loaded", CLIMATES,
     "weights and their average are loaded; the optimizer and the schedule begin anew", ALSO_ANEW),
)


def row_of(kind: str, name: str, program: str, about: str, more: Mapping[str, Any]) -> Row:
    """A row with what faults of its kind have in common. more: what is otherwise, and kinds that are right besides."""
    cause, kinds, begins, of, compare, also = OF_KIND[kind]
    of = more.get("of", of)
    rest = {"by_program": {program: of.get(program, {})}, "compare": more.get("compare", compare),
            "also": more.get("also", also)}  # fmt: skip
    return name, more.get("cause", cause), kinds + more.get("kinds", ""), begins, (program,), about, rest


FAULTS: tuple[Row, ...] = (
    *(row_of(*one) for one in OF_FIFTEEN),
    # reported
    ("times_in_thousandths_for_the_average", "times of the noise differ", "eval data config overfit divergence "
     "logging", "start", (CLIMATES,),
     "times are from 0 to 1 in the training, and from 0 to 1000 where the average is judged and draws",
     {"also": ("timestep scaled wrongly", "timestep scale differs", "timesteps differ", "time embedding differs",
               "train and test differ", "sampler uses other times", "time not divided by 1000", "wrong timestep",
               "conditioning differs", "preprocessing differs", "evaluation inputs differ", "times scaled twice",
               "noise level told wrongly", "noise conditioning wrong")}),
    ("guided_though_zones_were_never_hidden", "guidance without a hidden condition", "eval data config plateau "
     "divergence", "start", (CLIMATES,),
     "what is drawn is guided, and the zone is never hidden in the training: the guide has learnt nothing",
     {"also": ("condition never dropped", "label dropout missing", "unconditional branch not trained",
               "classifier-free guidance not trained", "null token never trained", "guidance wrong",
               "class dropout missing", "conditioning never dropped", "null embedding untrained",
               "embedding row never trained", "unconditional model missing", "drop probability is zero")}),
)

ALSO_RIGHT: Mapping[str, tuple[str, ...]] = {}

# -- healthy variants that the bench has, in these programs --------------------------------------------------------

ALONE = (CLIMATES,)
KNOWN_HEALTHY: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "resume": {program: {} for program in ALONE}, "memory_steady": {program: {} for program in PROGRAMS},
}

# -- healthy variants that are new: name, programs, what it is, more -----------------------------------------------

HEALTHY_BY_PROGRAM: tuple[tuple[str, str, Settings], ...] = (
    ("two_micro_batches_each", "an update has two micro-batches, whose losses are halved", PARTS),
    ("four_micro_batches_each", "an update has four micro-batches, whose mean is taken", FOUR_PARTS),
    ("dropout_that_is_named", "dropout in the training, as is named, and none in the evaluation", DROPPED),
    ("relatives_on_one_side_alone", "things have relatives, all of which are on the training's side", COPIED),
    ("slow_average_as_named", "an average of weights is judged that is slow at first", TRAILING),
    ("named_part_is_kept", "a part is not trained, which the settings name", KEPT),
    ("level_rate_as_named", "the rate rises and stays", {CLIMATES: {"decay": "none", "lr": 2e-3}}),
    ("sum_as_named", "losses are sums, as is named, and the bound of the norm is for that",
     {CLIMATES: {"reduce": "sum", "max_norm": 48.0}}),
    ("few_rows_and_less_rate", "few rows an update, at a lower rate: losses jump about",
     {CLIMATES: {"batch": 8, "lr": 1.5e-3}}),
    ("rate_rises_twice_as_named", "the rate falls and begins again, by the schedule", {CLIMATES: {"decay": "twice"}}),
    ("another_optimizer_as_named", "another optimizer, at its rate", {CLIMATES: {"optimizer": "adamax", "lr": 6e-3}}),
    ("untidy_data", "the training's data have more noise, as such data may", {CLIMATES: {"odd_weather": 1.8}}),
    ("two_steps_of_warmup", "the rate rises in two steps", {CLIMATES: {"warmup": 2}}),
    ("judged_twice_in_all", "two evaluations in all", {CLIMATES: {"sample_every": 75}}),
    ("each_fourth_is_logged", "each fourth step is logged", {CLIMATES: {"log_every": 4}}),
    ("simple_ones_to_begin_with", "the first part of the training has easier rows alone: the settings say so",
     {CLIMATES: {"mild_first": 1}}),
    ("much_decay_as_named", "weights decay more, as is named", {CLIMATES: {"weight_decay": 0.2}}),
    ("decay_is_nought_as_named", "weights do not decay", {CLIMATES: {"weight_decay": 0.0}}),
    ("inputs_shaken_as_named", "inputs are shaken by chance, in the training", {CLIMATES: {"gauge_error": 0.15}}),
)
HEALTHY: tuple[tuple[str, tuple[str, ...], str, dict[str, Any]], ...] = (
    *((name, tuple(settings), about, {"by_program": settings}) for name, about, settings in HEALTHY_BY_PROGRAM),
    ("times_weighed_by_signal", (CLIMATES,), "times weigh by a ratio of signal that is bounded",
     {"config": {"weighting": "snr"}}),
    ("drawn_without_a_guide", (CLIMATES,), "what is drawn is not guided, and the zone is hidden all the same",
     {"config": {"guidance": 1.0}}),
    ("one_block_more", (CLIMATES,), "one block more", {"config": {"blocks": 3}}),
)

# fmt: on
