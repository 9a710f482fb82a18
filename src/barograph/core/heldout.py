"""Words for data that are not trained on, as names of series have them.

Out:  `WORDS`; `HELD_OUT`, an expression of one of them, longer ones first.
"""

from __future__ import annotations

WORDS = ("validation", "valid", "val", "evaluation", "eval", "test", "dev")  # also as a part of a word: `testing_loss`
APART = ("te", "va", "cv", "oos", "held", "check", "unseen", "verification", "out_of_sample")  # these alone
ASIDE = rf"h[eo]ld[-_ ]?out|held[-_ ]?back|(?<![a-z])(?:{'|'.join(APART)})(?![a-z])"
HELD_OUT = rf"(?:{'|'.join(WORDS)}|{ASIDE})"
