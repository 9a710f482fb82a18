"""Programs of the bench by the half that they are of: steps of a test's training, faults that show at once."""

from __future__ import annotations

LOOP = ("vit", "diffusion", "contrastive", "lora", "qlora", "dpo", "rare_classes", "bf16_gpt", "fp16_gpt", "fsdp2")
# What was put away whole: steps that are enough to learn in, and of each program a fault that shows at once. Whether
# each fault shows in each program is looked at whenever traces are made.
OPENED = {
    "segmenter": (10, ("masks_not_flipped",)),
    "translator": (10, ("decoder_not_shifted",)),
    "masked_lm": (10, ("answers_in_input",)),
    "rnn_lm": (10, ("text_read_across",)),
    "tabular": (10, ("prices_broadcast",)),
    "graph": (10, ("links_not_normalised",)),
    "actor_critic": (20, ("bonus_drowns_rewards",)),
    "speech": (10, ("logits_for_logarithms",)),
}
THIRD = {
    "instruct": (10, ("prompts_counted",)),
    "reward_model": (10, ("score_at_first",)),
    "distilled": (10, ("teacher_not_loaded",)),
    "recurrent": (10, ("decay_sign_lost",)),
    "detector": (10, ("boxes_in_pixels",)),
    "forecaster": (10, ("window_holds_target",)),
    "value_learner": (10, ("next_state_alike",)),
    "autoencoder": (10, ("divergence_reversed",)),
}
# The fourth half: fewer steps.
FOURTH = {
    "tagger": (5, ("tags_not_aligned",)),
    "sentences": (5, ("scale_missing",)),
    "packed": (5, ("causality_lost",)),
    "gan": (5, ("generator_cut_off",)),
    "controller": (6, ("temperature_reversed",)),
    "recommender": (2, ("negatives_forgotten",)),
    "keypoints": (5, ("layers_in_list",)),
    "finetuned": (3, ("pictures_by_class",)),
}
# The fifth: the same.
FIFTH = {
    "patches": (4, ("scaled_twice",)),
    "denoiser": (4, ("bytes_diffused",)),
    "two_views": (4, ("temperature_multiplied",)),
    "adapted": (4, ("adapted_after_optimizer",)),
    "preferred": (4, ("logps_averaged",)),
    "intents": (10, ("scores_without_softmax",)),
    "mini_gpt": (4, ("causal_forgotten",)),
    "sharded": (3, ("never_synchronised",)),
}
# The sixth: the same.
SIXTH = {
    "glyphs": (3, ("batch_as_sequence",)),
    "waves": (4, ("noise_drawn_once",)),
    "keyed": (3, ("first_key_always",)),
    "four_bits": (3, ("mean_over_all_places",)),
    "verdicts": (3, ("references_not_in_order",)),
    "alarms": (3, ("stairs_each_batch",)),
    "brackets": (5, ("shifted_twice",)),
    "mixers": (3, ("divided_by_ranks",)),
}
# The seventh: the same.
SEVENTH = {
    "weaves": (6, ("one_label_behind",)),
    "streams": (3, ("times_across_columns",)),
    "captions": (3, ("scale_without_exponent",)),
    "sayings": (3, ("divided_by_rows",)),
    "leanings": (3, ("beta_outside",)),
    "claims": (10, ("copied_before_split",)),
    "verses": (3, ("positions_of_rows",)),
    "beacons": (3, ("summed_over_ranks",)),
}
# The eighth: the same.
EIGHTH = {
    "mosaics": (4, ("heads_by_view",)),
    "outlines": (3, ("targets_not_in_order",)),
    "tunes": (4, ("temperature_multiplied",)),
    "phrases": (6, ("adapters_zero",)),
    "recipes": (3, ("rejected_first",)),
    "tickets": (3, ("padding_alone_seen",)),
    "ledgers": (3, ("tied_by_copy",)),
    "hymns": (3, ("divided_by_longest",)),
    "shoals": (3, ("divided_by_ranks",)),
}
# The ninth: the same.
NINTH = {
    "dials": (4, ("places_lost",)),
    "blots": (3, ("told_other_times",)),
    "queries": (4, ("tau_multiplied",)),
    "drills": (3, ("prompts_learnt_too",)),
    "replies": (3, ("reference_not_copied",)),
    "complaints": (5, ("weights_in_other_order",)),
    "timetables": (3, ("targets_off_by_one",)),
    "numerals": (3, ("mask_upside_down",)),
    "manifests": (3, ("divided_by_world",)),
}
# The tenth: the same.
TENTH = {
    "flags": (3, ("cleared_before_step",)),
    "seasons": (3, ("noise_wanted",)),
    "voices": (3, ("features_not_normalised",)),
    "dates": (3, ("end_masked",)),
    "juries": (3, ("first_place_pooled",)),
    "payments": (3, ("figures_raw",)),
    "journals": (3, ("sees_ahead",)),
    "menus": (3, ("shifted_as_a_decoder",)),
    "convoys": (3, ("one_token_further",)),
}
# The eleventh: the same.
ELEVENTH = {
    "leaves": (3, ("softmax_at_the_end",)),
    "coasts": (3, ("time_left_out",)),
    "pulses": (3, ("scale_left_out",)),
    "glossaries": (3, ("padding_asked_for",)),
    "courtesies": (3, ("logps_not_shifted",)),
    "tremors": (3, ("weights_by_count",)),
    "spellings": (3, ("clipped_too_early",)),
    "logbooks": (3, ("scale_forgotten",)),
    "harbours": (3, ("two_places_on",)),
}
# The twelfth: the same.
TWELFTH = {
    "postmarks": (3, ("relu_on_logits",)),
    "gaits": (3, ("seed_set_each_batch",)),
    "receipts": (3, ("shift_done_twice",)),
    "turbines": (3, ("last_step_of_padded",)),
    "recitals": (3, ("embedding_drawn_wide",)),
    "orchards": (3, ("module_called_past_ddp",)),
}
# The thirteenth: the same.
THIRTEENTH = {
    "azulejos": (3, ("softmax_then_loss",)),
    "dunes": (3, ("cumprod_forgotten",)),
    "perfumes": (3, ("row_of_heads_counted",)),
    "inscriptions": (3, ("labels_shifted_by_hand",)),
    "farewells": (3, ("logps_at_own_place",)),
    "hotlines": (3, ("mask_upside_down",)),
}
# The fourteenth: the same.
FOURTEENTH = {
    "almanacs": (3, ("causal_flag_left_out",)),
    "ferries": (3, ("sync_condition_reversed",)),
    "errands": (3, ("collator_shifts_too",)),
    "mushrooms": (3, ("softmax_as_last_layer",)),
    "kites": (3, ("target_is_noise_model_says_v",)),
    "valves": (3, ("last_step_of_padded",)),
}
# The fifteenth: the same.
FIFTEENTH = {
    "telegrams": (3, ("decoder_input_not_shifted",)),
    "knits": (3, ("targets_two_ahead",)),
    "petitions": (3, ("probabilities_go_into_loss",)),
    "invitations": (3, ("logps_unshifted",)),
    "moths": (3, ("partner_index_off_by_one",)),
    "glaciers": (3, ("picture_flipped_alone",)),
}
# The sixteenth: the same.
SIXTEENTH = {
    "gazettes": (3, ("document_mask_not_causal",)),
    "ceramics": (3, ("module_called_past_ddp",)),
    "tariffs": (3, ("labels_shifted_before_loss",)),
    "beehives": (3, ("balanced_twice",)),
    "proverbs": (3, ("unasked_in_labels",)),
    "lanterns": (3, ("target_noise_drawn_again",)),
}
# The seventeenth: the same.
SEVENTEENTH = {
    "kilims": (3, ("mix_shares_swapped",)),
    "birdcalls": (3, ("others_zero_not_minus_one",)),
    "toasts": (3, ("lengths_left_out",)),
    "lifts": (3, ("packed_rows_not_put_back",)),
    "ballads": (3, ("slopes_uphill",)),
    "canals": (3, ("wanted_lock_in_history",)),
}
# The eighteenth: the same.
EIGHTEENTH = {
    "scribbles": (3, ("clean_points_clipped_to_one",)),
    "remedies": (3, ("logits_not_moved_against_labels",)),
    "aromas": (3, ("positive_behind_the_queue",)),
    "snowflakes": (3, ("cut_in_share_of_rest",)),
    "bulletins": (3, ("convolution_padded_on_both_sides",)),
    "meteors": (3, ("gaps_are_what_is_pooled",)),
}
# The nineteenth: the same.
NINETEENTH = {
    "swarms": (3, ("velocity_of_the_way_back",)),
    "blazons": (3, ("turns_masked_the_other_way",)),
    "routes": (3, ("scale_exp_taken_again",)),
    "corals": (3, ("mixed_rows_flipped_labels_rolled",)),
    "litanies": (3, ("window_reaches_ahead",)),
    "parcels": (3, ("shares_added_with_wrong_sign",)),
}
# The twentieth: the same.
TWENTIETH = {
    "tides": (3, ("weight_of_levels_upside_down",)),
    "archives": (3, ("scores_served_as_shares",)),
    "whales": (3, ("views_drawn_by_the_clips_seed",)),
    "signposts": (3, ("head_as_the_app_shows_it",)),
    "herbals": (3, ("same_recipe_mask_without_triangle",)),
    "rollers": (3, ("weights_grow_with_the_count",)),
}
# The twenty-first: the same.
TWENTYFIRST = {
    "petals": (3, ("untold_kind_comes_first_in_training",)),
    "kitchens": (3, ("shifted_by_collator_and_by_model",)),
    "headlines": (3, ("logps_gathered_without_shift",)),
    "spectra": (3, ("scale_used_as_its_logarithm",)),
    "reels": (3, ("targets_cut_where_inputs_are",)),
    "auctions": (3, ("weights_in_the_order_of_counts",)),
}
# The twenty-second, which is put away: the same.
TWENTYSECOND = {
    "passes": (3, ("generator_seeded_in_the_step",)),
    "concierges": (3, ("labels_moved_by_the_dataset_too",)),
    "apologies": (3, ("labels_gathered_at_their_own_place",)),
    "skymaps": (3, ("similarities_times_the_temperature",)),
    "fables": (3, ("shifted_in_the_loader_and_in_the_loss",)),
    "smears": (3, ("class_to_idx_of_each_folder",)),
}
# The twenty-third: the same.
TWENTYTHIRD = {
    "marbles": (3, ("quarry_number_straight_into_the_table",)),
    "pantries": (3, ("collator_and_model_both_shift",)),
    "slogans": (3, ("words_gathered_without_the_shift",)),
    "whistles": (3, ("half_of_the_catalogue_is_a_row_late",)),
    "chronicles": (3, ("moved_by_get_batch_and_by_forward",)),
    "pagers": (3, ("class_counts_are_the_weights",)),
}
# The twenty-fourth: the same.
TWENTYFOURTH = {
    "chimes": (3, ("rand_like_for_randn_like",)),
    "clocks": (3, ("labels_rolled_and_the_model_shifts",)),
    "waiters": (3, ("own_place_is_gathered",)),
    "borrowers": (3, ("books_zipped_a_row_late",)),
    "tablatures": (3, ("labels_of_the_collator_shifted_again",)),
    "packets": (3, ("weights_in_the_order_of_the_counter",)),
}
# The twenty-fifth: the same.
TWENTYFIFTH = {
    "plumes": (3, ("one_time_for_the_batch",)),
    "addresses": (3, ("labels_moved_in_collate_and_in_the_loss",)),
    "directions": (3, ("logprobs_of_the_same_place",)),
    "costumes": (3, ("captions_of_the_file_before",)),
    "gambits": (3, ("targets_cut_a_word_further",)),
    "heartbeats": (3, ("nets_drawn_apart_and_never_broadcast",)),
}
# The twenty-sixth: the same.
TWENTYSIXTH = {
    "crystals": (3, ("squares_summed_over_atoms",)),
    "peptides": (3, ("folds_begin_at_the_mark",)),
    "tallies": (3, ("words_wanted_are_moved_in_the_book_too",)),
    "gardens": (3, ("targets_begin_at_one",)),
    "snippets": (3, ("targets_begin_two_places_on",)),
    "minerals": (3, ("missing_is_a_number_like_others",)),
}
# The twenty-seventh: the same.
TWENTYSEVENTH = {
    "skylines": (3, ("squares_of_pixels_added",)),
    "dosages": (3, ("moved_in_the_collator_and_in_the_loss",)),
    "itineraries": (3, ("plans_moved_by_reader_and_by_loss",)),
    "vacancies": (3, ("people_are_sorted_for_packing",)),
    "equations": (3, ("asked_words_moved_again",)),
    "incidents": (3, ("kinds_weigh_by_their_number",)),
}
# The twenty-eighth: the same.
TWENTYEIGHTH = {
    "grooves": (3, ("squares_of_a_bar_added",)),
    "thermostats": (3, ("labels_rolled_by_the_mapper_too",)),
    "cocktails": (3, ("drinks_asked_for_a_place_late",)),
    "footprints": (3, ("shoes_of_a_batch_are_one_late",)),
    "genealogies": (3, ("asked_words_begin_two_ahead",)),
    "potholes": (3, ("wheel_answers_with_probabilities",)),
}
# The twenty-ninth: the same.
TWENTYNINTH = {
    "climates": (3, ("squares_of_a_year_summed",)),
    "passports": (3, ("collator_shifts_what_the_loss_shifts",)),
    "bouquets": (3, ("what_is_asked_is_a_word_late",)),
    "seashells": (3, ("header_of_the_notes_read_as_a_row",)),
    "volleys": (3, ("wanted_words_shifted_by_packer_and_by_step",)),
    "galaxies": (3, ("classifier_gives_shares",)),
}
# The thirtieth: the same.
THIRTIETH = {
    "typhoons": (3, ("loss_added_up_along_a_track",)),
    "commits": (3, ("labels_shifted_by_the_dataset_and_by_the_recipe",)),
    "readbacks": (3, ("logps_of_tokens_that_were_just_read",)),
    "playlists": (3, ("next_song_by_a_shift_over_all_listeners",)),
    "dominoes": (3, ("window_and_loss_both_shift",)),
    "logins": (3, ("guard_ends_in_a_softmax",)),
}
# The thirty-first: the same.
THIRTYFIRST = {
    "vintages": (3, ("squares_of_a_row_added_up",)),
    "conjugations": (3, ("labels_rolled_in_collate_for_a_loss_that_shifts",)),
    "haikus": (3, ("words_asked_for_where_they_are_read",)),
    "docstrings": (3, ("docstring_read_from_above_the_next_function",)),
    "rosters": (3, ("wanted_words_are_moved_once_more",)),
    "toxins": (3, ("network_ends_in_shares_for_the_app",)),
}
# The thirty-second, which was put away: the same.
THIRTYSECOND = {
    "gusts": (3, ("sites_of_the_training_counted_from_one",)),
    "shorthands": (3, ("logits_cut_in_front_and_labels_behind",)),
    "epitaphs": (3, ("labels_of_the_collator_are_shifted_and_so_are_logps",)),
    "stamps": (3, ("lines_looked_up_by_a_number_that_begins_at_one",)),
    "peals": (3, ("words_of_the_book_are_moved_and_moved_again",)),
    "bearings": (3, ("ear_says_shares_to_its_loss",)),
}
# The thirty-third, which was put away: the same.
THIRTYTHIRD = {
    "espressos": (3, ("squares_of_a_shot_are_added_up",)),
    "ciphers": (3, ("labels_moved_by_the_collator_and_by_the_loss",)),
    "horoscopes": (3, ("likelihood_gathered_where_a_word_is_read",)),
    "fossils": (3, ("head_line_of_the_labels_taken_for_a_row",)),
    "registers": (3, ("wanted_words_are_those_that_are_read",)),
    "welds": (3, ("inspector_ends_in_a_softmax_layer",)),
}
# The thirty-fourth, which was put away: the same.
THIRTYFOURTH = {
    "signatures": (3, ("errors_of_a_signature_added_up",)),
    "abjads": (3, ("mask_of_the_prompt_reaches_into_the_answer",)),
    "postcards": (3, ("gathered_for_the_word_that_is_there",)),
    "timbers": (3, ("words_are_those_of_the_next_timber",)),
    "inventories": (3, ("words_rolled_the_other_way",)),
    "seizures": (3, ("reader_ends_with_shares_for_the_ward",)),
}
# The thirty-fifth, which was put away: the same.
THIRTYFIFTH = {
    "meanders": (3, ("errors_summed_over_a_reach",)),
    "canons": (3, ("labels_made_before_the_start_was_put_in_front",)),
    "picnics": (3, ("logits_cut_in_front_and_words_behind",)),
    "feathers": (3, ("labels_of_rows_counted_from_one",)),
    "parades": (3, ("targets_begin_two_words_on",)),
    "bats": (3, ("net_ends_in_shares",)),
}
# The thirty-sixth, which is put away: the same.
THIRTYSIXTH = {
    "ripples": (3, ("squares_of_all_places_summed",)),
    "semaphores": (3, ("labels_moved_by_collate_as_well_as_by_the_loss",)),
    "wardrobes": (3, ("mask_of_outfits_begins_behind_the_coat",)),
    "lichens": (3, ("notes_found_by_numbers_that_begin_at_one",)),
    "regattas": (3, ("wanted_words_start_a_word_behind_the_next",)),
    "avalanches": (3, ("watcher_puts_out_probabilities",)),
}
LATER = (FOURTH | FIFTH | SIXTH | SEVENTH | EIGHTH | NINTH | TENTH | ELEVENTH | TWELFTH | THIRTEENTH | FOURTEENTH
         | FIFTEENTH | SIXTEENTH | SEVENTEENTH | EIGHTEENTH | NINETEENTH | TWENTIETH | TWENTYFIRST
         | TWENTYSECOND | TWENTYTHIRD | TWENTYFOURTH | TWENTYFIFTH | TWENTYSIXTH
         | TWENTYSEVENTH | TWENTYEIGHTH | TWENTYNINTH | THIRTIETH | THIRTYFIRST | THIRTYSECOND
         | THIRTYTHIRD | THIRTYFOURTH | THIRTYFIFTH | THIRTYSIXTH)  # fmt: skip
