"""Lines as other programs write them, with values right behind their names.

In:   `Cost after iteration 100: 0.58`, `loss (val): 2.31`, `[1/25][300/3183] loss 0.4`, `loss: tensor(2.31)`.
Out:  `iteration 100 Cost: 0.58`, `val loss: 2.31`, `epoch 1 batch 300/3183 loss 0.4`, `loss: 2.31`.
"""

from __future__ import annotations

import re

from barograph.core.patterns import expression
from barograph.importing.textlogs import forms, shown, tongues
from barograph.importing.textlogs.heldout import PHASE
from barograph.importing.textlogs.measures import LAST_WORD, MEASURE, OF

_AT = expression(  # `Cost after iteration 100: 0.58`
    rb" (?i:after|at|in|for|on) (?:the )?((?i:(?:global[_ ])?step|iteration|iter|epoch|batch|update|round|episode)s?)"
    rb"[ #]{1,2}(\d{1,15})(?=\s?[:=]|\sis\s)"
)
_OF_EPOCH = expression(  # `loss of epoch 3, batch 50: 0.58`
    rb"(?i)((?:[a-z]{1,20}[ _]){0,3}loss) (?:of|in|at|for) epoch[ _-]?(\d{1,9})[ ,_-]{1,3}(?:batch|iter|step)[ _-]?"
    rb"(\d{1,12})\s?(?=[:=])"
)
_DASHED = expression(
    rb"(?i)(?<![a-z])(epoch \d{1,6})-(\d{1,12})(?=[,:] {1,4}[a-z_ ]{0,20}loss\s?[:=])"
)  # `epoch 1-599, loss: 0.4`
_IN_ITS_BRACKETS = expression(  # `Loss [3, 200]: 0.58`, an epoch and a batch, and perhaps `(epoch, batch)` behind them
    rb"(?i)^(\W{0,8}(?:[a-z]{1,20}[ _]){0,2}loss)\s?\[(\d{1,9}),\s{0,8}(\d{1,12})\]"
    rb"(?:\s?\([a-z_ ,-]{3,40}\))?\s?(?=[:=]\s{0,8}[-\dni])"
)
_LOSS_OF = expression(  # `Loss of the value function: 0.58`
    rb"(?i)(?<![\w./-])loss of (?:the )?((?:[a-z]{2,20} ){0,3}[a-z]{2,20})(?=\s{0,4}[:=]\s{0,20}" + forms.NUMBER + rb")"
)
_VALUE_BEHIND = expression(  # `loss_train, 0.58`: a name and its value as two words of a list
    rb"(?i)(?<=, )((?:" + OF + rb")(?:[a-z]{1,20}[_-]){0,2}(?:loss|acc(?:uracy)?|nll)(?:[_-][a-z]{1,20})?), "
    rb"(?=(?:-?\d{1,9}\.\d[\d.e+-]{0,20}|nan|inf)\s{0,4}(?:,|$))"
)
_AFTER = expression(rb" after (\d{1,15}) (steps|iterations|iters|updates|epochs|batches) (?:is|was)(?= )")
_DARKNET = expression(
    rb"^(\W{0,8}\d{1,15}: " + forms.NUMBER + rb", " + forms.NUMBER + rb" avg)(?=, " + forms.NUMBER + rb" rate,)"
)
_WITH_COMMAS = expression(  # `loss: 2,3104`, as other countries write it; three digits may be thousands
    rb"(?i)(?:loss|cost|acc(?:uracy)?|error|mse|mae|nll|lr)['\"]?[ \t]{0,4}[=: ][ \t]{0,4}-?"
    rb"(?:0,\d{1,15}|\d{1,6},(?:\d{1,2}|\d{4,15}))(?![\d,.])"
)
_POINT = expression(rb"\d\.\d")
_COMMA = expression(rb"(?<=\d),(?=\d)")
_SCORE = expression(rb"\bScore at iteration (\d{1,15}) is (?=[-+]?(?:\d|NaN|nan|inf))")  # DL4J calls its loss so
_OBJECTIVE = expression(  # Kaldi's: `Average objective function for 'output' for minibatches 10-19 is -0.2`
    rb"(?i)average objective function for '([\w-]{1,40})' for minibatches \d{1,9}-(\d{1,9}) is (?="
    + forms.NUMBER
    + rb")"
)
_OF_SEQUENCES = expression(  # EESEN's: `After 4000 sequences (2.1Hr): Obj(log[Pzx]) = -40.2   TokenAcc = 81.2%`
    rb"\bAfter (\d{1,12}) sequences \([\d.]{1,12}Hr\): Obj\(log\[Pzx\]\)(?= = )"
)
_FIRST_OF = expression(rb"(?<![\w@])([A-Za-z][\w-]{0,24})\s?\(k\s?=\s?(\d{1,4})\)(?=\s?[:=])")  # `NDCG(k=20): 0.25`
_VALI = expression(rb"(?<![A-Za-z])([Vv])ali(?= (?:[Ll]oss|[Aa]cc|MSE|MAE|mse|mae))")  # `Vali Loss: 0.4`
REACHED = expression(  # Lightning's: `'val/CER' reached 0.31 (best 0.31), saving model to …`
    rb"(?<=: )'?([A-Za-z][\w./-]{0,60})'? reached (" + forms.NUMBER + rb") \(best [^\n]{0,4000}"
)
_SINGLE = expression(rb"(?<=\d)f(-?\d{1,2})(?![\w.])")  # Julia's numbers of single precision: `2.31f0`
_TUPLE = expression(  # `(step, loss) = (5, 2.31)`, `(i, loss(x, y)) = (5, 2.31 (tracked))`
    rb"\((\w{1,30}(?:, \w{1,30}(?:\([^()\n]{0,80}\))?){1,8})\) = "
    rb"\(([^()\n]{1,200}(?:\([a-z]{1,12}\)[^()\n]{0,200}){0,8})\)"
)
_CALL = expression(rb"\s?\([^()\n]{0,80}\)")
_SAYS_COUNT = expression(rb"(?i)(?<![a-z])(?:step|iter(?:ation)?|epoch|batch|update|ep|it)s?\W{0,4}\d|^\W{0,4}\d")
_NAME_IN_BRACKETS = expression(  # `[loss]: 2.31`, `[step] 5 [loss] 2.31`
    rb"\[([A-Za-z][A-Za-z_ ]{1,30})\](?=\s?[:=]\s{0,4}(?:[-+\d]|nan|inf))|"
    rb"\[\s?((?i:step|iter(?:ation)?|epoch|batch|loss|lr|train loss|val loss|acc(?:uracy)?))\s?\]"
    rb"(?=\s{0,4}(?:[-+\d]|nan|inf))"
)
_OF_BATCHES = expression(rb"(?i)(mini-?batch)\[\s{0,8}\d{1,12}-\s{0,8}(\d{1,12})(?=[\],])")  # `Minibatch[  11-  20]`
_LETTER = expression(  # of mathematics, for what is made small: `k = 5, f(x) = 2.31`
    rb"(?<![\w./|-])(?:L|J|J\((?:\w|\xce\xb8)\)|f(?:\(x\))?|\xe2\x84\x92)(?=\s?[=:]\s{0,4}[-+]?(?:\d|nan|inf))"
)
_ERROR = expression(rb"(?<![\w./|-])E(?=\s?[=:]\s{0,4}[-+]?(?:\d|nan|inf))")
_ERROR_ALONE = expression(  # `Iteration: 100  Error: 0.19`: what a network's training makes small
    rb"^(\W{0,8}(?i:iter(?:ation)?|step|epoch)s?[ :=#]{1,3}\d{1,12}[\s,;|-]{1,8})(?:(?:[Tt]otal|[Mm]ean) )?[Ee]rror"
    rb"(?=\s?[:=]\s{0,4}" + forms.NUMBER + rb"\s*$)"
)
_SIDE = expression(rb"(?<![\w.])([TV])_(?=[Ll]oss|LOSS|[Aa]cc|ACC)")  # `T_loss 0.4 | V_loss 0.5`
_COUNTED = expression(
    rb"(?i)^(?:\[rank ?\d{1,6}\]:?)?\W{0,8}(?:[tkni]\s?=\s?\d|(?:at )?(?:iter(?:ation|ate)?|step|epoch)s?[ :=#]{1,8}\d)"
)
_NAMELESS = expression(  # `5000 5% (0m 12s) 2.4177`, `0m 12s (- 3m 4s) (5000 5%) 2.4177`: a count, its share, the time
    rb"^(?:(\d{1,12}) \d{1,3}% \((?:\d{1,4}[hms] ?){1,3}\)|(?:\d{1,4}[hms] ?){1,3}\(- ?(?:\d{1,4}[hms] ?){1,3}\) "
    rb"\((\d{1,12}) \d{1,3}%\)) (?=(?:\d{1,9}\.\d{2,15}|nan|inf)(?![\w.%/])"
    rb"(?! ?[KMGTkmgt]?i?[Bb](?:its?|ytes?)?(?:/s|ps)?\b))"
)
_IN_BRACKETS = expression(
    rb"^(step), ([a-z_]{0,30}loss)\[(" + forms.NUMBER + rb")\]\[(\d{1,15})\]$"
)  # of Mesh TensorFlow
_FORTRAN = expression(rb"(?<=\d)D(?=[+-]\d{2,3}(?!\w))")  # `2.310D-02`
_NORM = expression(rb"\|{1,2}\s?(?:proj(?:ected)? )?g(?:rad(?:ient)?)?\s?\|{1,2}(?=\s?[=:])")  # of the gradient
_BESIDE_NORM = expression(  # what is made small, beside the norm of its gradient: `f 2.31 |g| 0.4`
    rb"(?<![\w./|-])f(?= (" + forms.NUMBER + rb") \|g\| " + forms.NUMBER + rb")"
)
_SAID = expression(rb"(?i)\W{0,8}(?:iter(?:ation)?|step|epoch)s?[ :=#]{1,3}\d")
_ANGLES = expression(rb"<(" + forms.NUMBER + rb"(?:/\d{1,15})?)>")  # `loss <2.31>`
_NATS = expression(rb"(?<=[:=,] )(" + forms.NUMBER + rb")(?= ?(?:nats?|bits?)/[a-z])")  # `step 5: 2.31 nats/token`
_OF_PATH = expression(rb"/(step|iter(?:ation)?|epoch) (?=\d)")  # `exp_7/lr3e-4/step 5: loss 2.31`
_TOTAL = expression(  # `recon 2.1, kl 0.2, total 2.3`
    rb"(?i)(?<![a-z])(?:recon|rec|kld?|reg|ce|mse|bce|l1|l2|aux|box|cls)(?=[ =:]{1,3}\d)"
    rb"[^\n]{1,120}?(?<![\w./])total(?=[ =:]{1,3}" + forms.NUMBER + rb"(?! ?(?:m?s|min|sec|h)(?![a-z])))"
)
_TOTAL_ALONE = expression(  # `[epoch: 3/20, iter: 5/448] total: 1.0212`: nothing else is said of that batch
    rb"(?i)^\W{0,4}epochs?[ :=#]{1,3}\d{1,9}(?:/\d{1,9})?[\s,;|\])(\[]{1,6}"
    rb"(?:iter(?:ation)?s?|batch|steps?)[ :=#]{1,3}\d{1,12}(?:/\d{1,12})?[\s,;:|\])]{1,6}"
    rb"total(?=[ =:]{1,3}-?\d{1,9}\.\d{3})"
)
_STEP_NAME = expression(rb"(?i)^(\W{0,8}(?:step|iter|epoch))(?:_batch)?_(\d{1,12})(?=[\s:,;|])")  # `step_5: loss 2.31`
_CALLED = expression(rb"(?<=[Ll]oss) (?:metric|value)(?= {1,3}[-+]?\d{1,9}\.\d)")  # `loss metric 2.31`
_STEP_BETWEEN = expression(  # `Train loss 100 2.31`
    rb"(?i)(?<![\w./-])((?:train(?:ing)?|val(?:id(?:ation)?)?|test|eval)[ _]loss) (\d{1,12}):? {1,8}"
    rb"(?=-?\d{1,9}\.\d|-?nan|-?inf)"
)
_LOSS_AT = expression(  # `val loss @ 500: 2.31`; `recall @ 10` counts no steps
    rb"(?i)((?<![\w./-])(?:" + OF + rb")(?:[a-z]{1,20}[_ /.-]){0,2}(?:[a-z]{0,9}loss|nll|ppl|perplexity|bpb)) "
    rb"@ {0,2}(?:(?:step|iter(?:ation)?) {0,2})?(\d{1,15})(?=\s?[:=])"
)
_LIST = expression(  # `train losses: [0.41, 0.2]`: parts that have no names
    rb"(?i)(?<![\w./])((?:" + OF + rb")(?:[a-z]{1,20}[_ /.-]){0,2}loss(?:es)?)\s?[:=]\s?"
    rb"\[\s?(" + forms.NUMBER + rb"(?:,\s?" + forms.NUMBER + rb"){1,15})\s?\]"
)
_BRACKETS = expression(  # `[1/25][300/3183]`, `[1,  2000]`: an epoch and a batch
    rb"^([\W_]{0,12})\[(\d{1,9})(?:/\d{1,9}\]\s?\[(\d{1,12})/(\d{1,12})|,\s{1,12}(\d{1,12}))\](?=[\s:,])"
)
_OF_DATA = expression(
    rb"(?i)^(\W{0,8}\[(?:train|val|valid|test|eval)[a-z]{0,9}): (\d{1,6}), (\d{1,12}) ?/ ?(\d{1,12})\]"
)  # `[train: 3, 50 / 400]`
_BEFORE_COUNT = expression(  # `L: 2.31, L_ctc: 1.2, epoch: 3/50`
    rb"(?i)^\W{0,8}(?-i:L)(?=\s?[=:]\s{0,4}\d{1,9}\.\d)"
    rb"(?=[^\n]{0,200}?(?<![a-z])(?:epoch|iter(?:ation)?|step|batch)s?[ :=#]{1,3}\d)"
)
_NAMES = expression(  # `loss1,loss2 2.31 0.4`: names, and behind them their values
    rb"(?<![\w./,-])([A-Za-z]\w{0,40}(?:, ?[A-Za-z]\w{0,40}){1,8})(?:\s?[:=]?|\s{1,4}[=-]{1,4}>)\s{1,4}("
    + forms.NUMBER
    + rb"(?:,?\s{1,4}"
    + forms.NUMBER
    + rb"){1,8}),?\s*$"
)
_OF_BAR = expression(rb"^([\W_]{0,12})[\[(](\d{1,9}/\d{1,9})[\])](?=\s?[A-Za-z:])")  # `[3/100] loss: 0.4: 100%|##|`
_TWO = expression(rb"^(\d{1,6}) (\d{1,9}) (?=[A-Za-z][\w ]{0,30}[=:]\s?[-+]?(?:\d|nan|inf))")  # `333 154 Loss=2.31`
_GLUED = expression(
    rb"(?<![\w.])(?:\d{1,12}-)?(\d{1,12})(epoch|batch|step|iter)(?=:| results:)"
)  # `5epoch:train:376-750batch:`
_COUNT_BEHIND_BAR = expression(  # `Training [>>>    ] 20/600, loss=2.31`
    rb"\[[>=#*.\- ]{8,200}\]\s{1,3}(\d{1,12}/\d{1,12})(?=[,;\s])"
)
_STARS = expression(  # `train loss: 55%[****->....]1.210`: how full a bar is, and the last batch's value
    rb"(?:[A-Za-z][A-Za-z_ ]{0,40}:\s{0,4})?(?<!\d)\d{1,3}%\[[*=>.#\- ]{3,200}\](?:\d{1,9}(?:\.\d{1,12})?)?"
)
_LISTED = expression(
    rb"(?:(?<=[:=])|(?<=oss ))(\s{0,4})\[{1,2}(-?\d{1,15}\.\d{1,20}(?:e[-+]?\d{1,3})?|-?nan|-?inf)\]{1,2}"
)  # `loss: [2.31]`
_OVER = expression(  # `test loss of 8 batches: 2.3`
    rb"(?<=[A-Za-z]) (?:of|over|on|for|in|from) (?:the )?(?:last |all )?\d{1,9} (?:mini-?)?"
    rb"(?:batch(?:es)?|samples?|examples?|images?|items?|tokens?|frames?|steps?|iterations?|episodes?)(?=\s?[:=])"
)
_SET = rb"(?i:train|val|valid|eval|test|dev)[a-z]{0,9}"
_REMARK = expression(
    rb"(?<=[A-Za-z0-9])[\s_]?\((?!"
    + _SET
    + rb"\))[a-z](?:[A-Za-z0-9 ,._=-]|(?<=\d):(?=\d)){0,24}\)(?=\s?[:=])"  # `loss (curr): 2.31`
    rb"|(?<=[A-Za-z])\s?\([a-z][a-z0-9 ]{1,24}\)(?=\s(?:at|after|@)\s)"  # `loss (for one batch) at step 5`
    rb"|(?<=oss)\s?\([a-z]{2,12}\)(?=\s{1,4}(?:-> |[-+]?\d))"
    rb"|(?:(?<=eward)|(?<=eturn)|(?<=core))\s?\(\d{1,6}(?:[ -]?(?:eps?|episodes?|games?|avg))?\)(?=\s?[:=])"
)
_FOREIGN = re.compile(  # `Train Loss (正常の復元): 2.31`: words in another script, unless they say the data
    r"(?<=[A-Za-z0-9])\s?\((?![^()\n]{0,120}(?:验证|驗證|测试|測試|検証|検査|テスト|검증|테스트|训练|訓練|학습|train|val|test))"
    r"[^\x00-\x7f()][^()\n]{0,120}\)(?=\s?[:=])".encode()
)
_SO_FAR = expression(  # `avg loss so far is 2.31`: a mean of the epoch; the best so far is none
    rb"(?i)(?<![a-z])(?P<name>(?:(?:running|avg|average|mean|train(?:ing)?|total|epoch)[ _]){0,2}loss) so far"
    rb"(?=\s?[:=]|\sis\s)"
)
_PADDED = expression(rb"(?<![A-Za-z])(nan)x{1,9}(?![A-Za-z])")  # a field of fixed width
_ASIDE = expression(rb"(?i)([a-z_ -]{0,30}loss)[\s_]?[(\[](train|val|valid|eval|test|dev)[a-z]{0,9}[)\]]")
_LOSS_PARTS = expression(  # `losses: {'a': 2.31, 'b': 0.4}`, `Losses(a: 2.31, b: 0.4)`
    rb"(?i)(?<![\w./])loss(?:es)?(?:['\"]?\s?[:=]\s?\{|\((?=\w{1,40}\s?[:=]))((?:\s?['\"]?\w{1,40}['\"]?\s?[:=]\s?"
    + forms.NUMBER
    + rb"\s?,?){1,16})[})]"
)
_BRACKETED_PARTS = expression(  # `mask_loss: [last: 2.31 | mean: 2.4]`
    rb"(?<![\w./])((?:[A-Za-z]{1,20}_){0,3})[Ll]oss(?:es)?\s?[:=]\s?\[((?:\s?[A-Za-z]\w{0,40}\s?[:=]\s?"
    + forms.NUMBER
    + rb"\s?[,|;]?){1,16})\s?\]"
)
_BOTH = expression(  # `train 2.31 | val 2.4`, which says not of what
    rb"(?i)(?<![\w./|-])((?:\| )?)(train|tr|trn)(\s{1,4})(-?\d{1,9}(?:\.\d{1,12})?)([\s,;|/]{1,6})"
    rb"(val|valid|validation|va|test|te|eval|dev)\s{1,4}(-?\d{1,9}(?:\.\d{1,12})?)(?=[\s,;|)]|$)"
)
_SCALED = expression(rb"(?<![\w.])(\d{1,6}(?:\.\d{1,3})?)(k?)it/\d{1,6}(?:\.\d{1,3})?[kM]?it\b")  # `1.25kit/10.0kit`
_BEHIND_BAR = expression(  # ` 3/600 [00:09<20:00, 2.1s/it]2, 2.31`: a step and a value without names
    rb"(?<!\d)(\d{1,12})/(\d{1,12}) \[[^\]\n]{0,80}it\]\s{0,4}(\d{1,12})[,:]?\s{1,4}(\d{1,9}\.\d{1,20})\s*$"
)
_FIT = expression(rb"(?:fit )?progress: \((\d{1,9}), (" + forms.NUMBER + rb"), ")  # Flower's rounds
_OF_TWO = expression(rb"(loss\s?[:=]\s?)\[(" + forms.NUMBER + rb")/" + forms.NUMBER + rb"\]")  # the last, and a mean
_GROUP = expression(  # icefall's `loss[loss=0.4, simple=0.7, over 52 frames.], tot_loss[loss=0.5, …]`
    rb"(?<![\w./-])((?:[a-z]{1,20}_)?)loss\[(?=[A-Za-z]\w{0,40}=)([^\[\]\n]{1,400})\]"
)
_OF_GROUP = expression(rb"(?<![\w.])([A-Za-z]\w{0,40})=(?=" + forms.NUMBER + rb")")
_BUCKET = expression(rb"(?<![\w/])bucket (\d{1,4}) (loss|ppl|perplexity)(?=[ :=])")  # of lengths, each with its own
_PART_NAME = expression(rb"['\"]?([A-Za-z]\w{0,40})['\"]?\s?[:=]")
_OBJECT = expression(
    rb"(?:\w{1,20}\.)?(?:[tT]ensor|[aA]rray|ArrayImpl|DeviceArray|param|float\d{0,3})\(\[{0,2}("
    + forms.NUMBER
    + rb")\]{0,2}(?:, (?:[^()\n]|\(\)){1,200})?\)|<tf\.Tensor: [^<>\n]{0,80}?numpy=("
    + forms.NUMBER
    + rb")>"
)
_BOLD = expression(rb"\*\*(?=[\w.:=,+-])|(?<=[\w.])\*\*")  # of Markdown: `loss: **2.31**`
_BARRED = expression(  # `step 5  loss | 2.31`, where no row of a table is meant
    rb"(?i)((?:^|[\t,;(]|\s{2}|\s-)\s{0,4}(?:"
    + OF
    + MEASURE
    + rb")) \| (?="
    + forms.NUMBER
    + rb"(?:[a-z%/ ]{0,12}\s{0,4}(?:$|[,;(\t]|\s{2})))"
)
_OF_SET = expression(
    rb"(?<![\w/.])(loss|Loss|acc|accuracy|Accuracy):(train|val|valid|eval|test|dev)(?=[=:\t ,|]{1,3}[\sA-Za-z\d+-])"
)
_QUOTED = expression(rb"([=:\s])([\"'])(" + forms.NUMBER + rb")\2")  # `step="100"`, as an attribute is written
_OF_ALL = expression(  # what counts, and out of how many
    rb"(?i)(?<![\w/.-])(epochs?|iter(?:ation)?s?|steps?|batch(?:es)?)/(?:(?:total|max|num|n)[_ ]?)?"
    rb"(?:epochs?|iter(?:ation)?s?|steps?|batch(?:es)?|total|max)(?=\s?[:=]?\s{0,6}\[?\d{1,9}\s?/\s?\d)"
)
_EPOCH_AND_STEP = expression(  # `epoch/iter: 52/13673`
    rb"(?i)(?<![\w/.-])(epoch)s?/(iter(?:ation)?|step|batch)(?:es|s)?\s?[:=]?\s{0,6}\[?(\d{1,9})\s?/\s?(\d{1,15})\]?(?![\d.])"
)
_OF_GROUPS = expression(  # of parameters: `lr:(1.0e-04,)`, `LR: [0.001, 0.01]`
    rb"(?i)(?<![A-Za-z])((?:lr|learning[_ ]rate)['\"]?\s?[:=]\s?)[\[(]\s?(" + forms.NUMBER + rb")(?:,\s?" + forms.NUMBER
    + rb"){0,15},?\s?[\])]"
)  # fmt: skip
_TRAINED = expression(  # MATLAB's `train`: what is made small, and its gradient, each with its goal
    rb"Performance (" + forms.NUMBER + rb")/" + forms.NUMBER + rb", Gradient (" + forms.NUMBER + rb")/" + forms.NUMBER
    + rb", Validation Checks \d{1,9}/\d{1,9}"
)  # fmt: skip
_OF_EXAMPLES = expression(  # `Accuracy: 9822/10000 (98%)`, `acc=5401/10000`: as many are right, of how many
    rb"(?i)((?<![a-z])acc(?:uracy)?(?:\s?[:=]\s{0,4}|\s{1,4}))(\d{1,12})\s?/\s?(\d{1,12})(?![\d./])"
    rb"(?:\s?\(\s?(\d{1,3}(?:\.\d{1,12})?)\s?%?\s?\))?"
)
_NEAR = 1e-3
_EXAMPLES = 50  # what is more than batches of an epoch, which such a fraction may count
_SET_BEHIND = expression(  # `Loss Test 2.31` beside a loss of the training
    rb"((?i:loss)\s?[:= ]\s?"
    + forms.NUMBER
    + rb"[,;|]?\s{1,4})(Loss|loss) ([Tt]est|[Vv]al(?:id(?:ation)?)?)(?=[:=]? {1,4}"
    + forms.NUMBER
    + rb")"
)
_APART = (
    expression(  # `train/loss/con 0.04 / train/loss/dyn 5.41 / fps/train 53.7`: names with paths, values, and ` / `
        rb"(?<![^\s])([a-z]\w{0,40}(?:/\w{1,40}){1,6}) (" + forms.NUMBER + rb")(?= / |\s*$)(?: / )?"
    )
)
_RIGHT = expression(  # `accuracy: 0.95 (1140 / 1200)`: how many were right of how many
    rb"(?i)((?<![a-z])acc(?:uracy)?\s?[:= ]\s{0,4}\d{1,3}(?:\.\d{1,12})?\s?%?\s?)\(\s{0,8}\d{1,15}\s?/\s?\d{1,15}\)"
)


def names_as_words(text: bytes) -> bytes:
    """A text in which `loss:val=0.4` is `val_loss=0.4`, `NDCG(k=20)` is `NDCG@20`, and `Epoch/Epochs: 3/50` is
    `Epoch: 3/50`."""
    text = _FIRST_OF.sub(rb"\1@\2", text) if b"(k=" in text or b"(k =" in text else text
    if b"/" in text and any(word in text for word in (b"poch/", b"ter/", b"tep/", b"atch/", b"pochs/", b"POCH/")):
        text = _OF_ALL.sub(rb"\1", _EPOCH_AND_STEP.sub(rb"\1 \3 \2 \4 ", text))
    return _OF_SET.sub(rb"\2_\1", text) if b"oss:" in text or b"cc:" in text or b"racy:" in text else text


def unpacked(line: bytes) -> bytes:
    """A line in which the parts of a printed loss have names of their own, and printed pairs are names with values."""
    if b"oss" in line and (b"{" in line or b"[" in line or b"oss(" in line or b"osses(" in line):
        line = _OF_TWO.sub(rb"\1\2", _LOSS_PARTS.sub(_named_parts, line))
        line = _BRACKETED_PARTS.sub(_parts_of_one, line)
        line = _GROUP.sub(_of_group, line) if b"loss[" in line else line
    if b"it/" in line and b"it " in line:
        line = _SCALED.sub(lambda found: b"step %d" % round(float(found[1]) * (1000 if found[2] else 1)), line)
    if b"it]" in line:
        line = _BEHIND_BAR.sub(_step_and_loss, line)
    if (b"(" in line or b"[" in line) and (b"lr" in line or b"LR" in line or b"earning" in line):
        line = _OF_GROUPS.sub(rb"\1\2", line)
    if b"progress: (" in line:
        line = _FIT.sub(rb"round \1, loss: \2, ", line)
    return shown.as_text(line) if b"(" in line else line


def as_pairs(line: bytes) -> bytes:
    """A line in which values stand right behind their names."""
    line = tongues.in_english(_FOREIGN.sub(b"", line) if b"(" in line else line)
    if b"," in line and _WITH_COMMAS.search(line) and not _POINT.search(line):
        line = _COMMA.sub(b".", line)
    line = _of_shares(_ASIDE.sub(_before, line) if b"oss" in line or b"OSS" in line else line)
    if (b"tr" in line or b"Tr" in line or b"TR" in line) and b"oss" not in line:
        line = _BOTH.sub(rb"\1train: \4\5\6: \7", line)
    if b"(" in line:
        line = _RIGHT.sub(rb"\1", line) if b"cc" in line or b"CC" in line else line
        line = _REMARK.sub(b"", _OBJECT.sub(rb"\1\2", line))
    if b"**" in line:
        line = _BOLD.sub(b"", line)
    if b"%|" in line:
        line = _OF_BAR.sub(rb"\1epoch \2 ", line)
    if b"%[" in line:
        line = _STARS.sub(b"", line)
    if b" | " in line:
        line = _BARRED.sub(rb"\1: ", line)
    if b"f" in line and _SINGLE.search(line):
        line = _SINGLE.sub(rb"e\1", line)
    if b") = (" in line:
        line = _TUPLE.sub(_paired, line)
    if b"atch[" in line:
        line = _OF_BATCHES.sub(rb" \1 \2 [", line)
    if b"loss " in line or b"Loss " in line:
        line = _STEP_BETWEEN.sub(rb"step \2 \1 ", _CALLED.sub(b"", line))
    if b"D+" in line or b"D-" in line:
        line = _FORTRAN.sub(b"e", line)
    if b"|" in line:
        line = _NORM.sub(b"grad_norm", line)
    line = _of_letters(line)
    if b"," in line and b"oss" in line:
        line = _NAMES.sub(_each_with_its_own, line)
    if b"/step " in line or b"/iter" in line or b"/epoch " in line:
        line = _OF_PATH.sub(rb" \1 ", line)
    if b"total" in line:
        line = _TOTAL.sub(lambda found: found[0] + b"_loss", line)
        line = line if b"oss" in line else _TOTAL_ALONE.sub(lambda found: found[0] + b"_loss", line)
    if b"nat" in line or b"bit" in line:
        line = line if b"oss" in line else _NATS.sub(rb"loss \1", line)
    if b"<" in line:
        line = _ANGLES.sub(rb" \1 ", line)
    if b".item()" in line:
        line = line.replace(b".item()", b"")
    line = _STEP_NAME.sub(rb"\1 \2", line)
    if b" after " in line:
        line = _AFTER.sub(rb" after \2 \1:", line)
    line = _OVER.sub(b"", _of_programs(line))
    if b" so far" in line and b"est " not in line:
        line = _SO_FAR.sub(rb"\g<name>", line)
    if b"nanx" in line:
        line = _PADDED.sub(rb"\1", line)
    if b"oss of epoch" in line or b"oss in epoch" in line or b"oss at epoch" in line or b"oss for epoch" in line:
        line = _OF_EPOCH.sub(rb"epoch \2 batch \3 \1", line)
    if b", " in line and (b"oss" in line or b"acc" in line):
        line = _VALUE_BEHIND.sub(rb"\1: ", line)
    if b" is:" in line or b" is =" in line:
        line = line.replace(b" is:", b":").replace(b" is =", b" =")
    if b" @" in line:
        line = _LOSS_AT.sub(rb"step \2 \1", line)
    if (at := _AT.search(line)) and (said := LAST_WORD.search(line[: at.start()])):
        begin = said.start(1)
        line = b"%s%s %s %s%s" % (line[:begin], at[1], at[2], line[begin : at.start()], line[at.end() :])
    if b"=" in line or b":" in line:
        line = _TWO.sub(rb"epoch \1 batch \2 ", line)
    if b"[" in line:
        line = _NAME_IN_BRACKETS.sub(rb" \1\2 ", line)
        line = _IN_ITS_BRACKETS.sub(rb"epoch \2 batch \3 \1", line) if b"oss" in line else line
        line = _LIST.sub(_parts, line) if b"oss" in line else line
        line = _BRACKETS.sub(_epoch_and_batch, line)
        line = _OF_DATA.sub(rb"\1 epoch \2 batch \3/\4]", line)
        line = _LISTED.sub(rb"\1\2", line)
    if b"epoch:" in line or b"batch:" in line or b"epoch results:" in line:
        line = _GLUED.sub(rb"\2 \1", line)
    if b"\xef\xbc\x9a" in line:  # a wide colon
        line = line.replace(b"\xef\xbc\x9a", b": ")
    if b"'s " in line:
        line = line.replace(b"'s ", b" ")  # `training's log loss`
    return _QUOTED.sub(rb"\1\3 ", line) if b'"' in line or b"'" in line else line


def _of_shares(line: bytes) -> bytes:
    """A line in which `9822/10000` right ones are a share of them, and no strokes stand between values with paths."""
    if b"/" not in line:
        return line
    if b"cc" in line or b"CC" in line:
        line = _OF_EXAMPLES.sub(_share, line)
    return _APART.sub(rb"\1: \2, ", line) if line.count(b" / ") > 2 else line


def _of_letters(line: bytes) -> bytes:
    """A line in which a letter that means a loss is called so: `k = 5, f(x) = 2.31`, `L: 2.31, epoch: 3`."""
    if line[:10].lstrip(b" [(-*").startswith((b"L:", b"L=", b"L ")):
        line = _BEFORE_COUNT.sub(b"loss", line)
    if b" |g| " in line:
        line = _BESIDE_NORM.sub(b"objective", line)
    if b"oss of " in line:
        line = _LOSS_OF.sub(rb"\1 loss", line)
    if _COUNTED.match(line):
        line = _LETTER.sub(b"loss", line)
        line = _ERROR.sub(b"loss", line) if b"E" in line and _SAID.match(line) else line
        line = _ERROR_ALONE.sub(rb"\1loss", line) if b"rror" in line else line
    return line


def _of_programs(line: bytes) -> bytes:
    """A line as programs of one kind write it, as others do."""
    if b"% (" in line or b"%) " in line:
        line = _NAMELESS.sub(rb"step \1\2 loss ", line)
    if b"][" in line and b"oss[" in line:
        line = _IN_BRACKETS.sub(rb"\1 \4 \2=\3", line)
    if b"oss Test" in line or b"oss test" in line or b"oss Val" in line or b"oss val" in line:
        line = _SET_BEHIND.sub(rb"\1\3 \2", line)
    if b". Loss is " in line and b"Throughput is " in line:  # BigDL's sentences
        line = line.replace(b" is ", b": ")
    if b"Score at" in line:
        line = _SCORE.sub(rb"iteration \1 loss: ", line)
    if b"R\xc2\xb2" in line or b"R^2" in line:
        line = line.replace(b"R\xc2\xb2", b"r2").replace(b"R^2", b"r2")
    if b"Validation Checks" in line:
        line = _TRAINED.sub(rb"loss: \1, grad_norm: \2", line)
    if b"ali " in line:
        line = _VALI.sub(rb"\1al", line)
    if (b"V_L" in line or b"V_l" in line) and (b"T_L" in line or b"T_l" in line):
        line = _SIDE.sub(lambda side: b"train_" if side[1] == b"T" else b"val_", line)
    if b"poch " in line:
        line = _DASHED.sub(rb"\1 batch \2", line)
    if b" sequences (" in line:
        line = _OF_SEQUENCES.sub(rb"step \1 objf", line)
    if b"inibatches" in line:
        line = _OBJECTIVE.sub(rb"step \2 \1 objf: ", line)
    if b"Saving dict for global step" in line:  # an estimator's evaluation
        line = line.replace(b"Saving dict for", b"eval")
    if b" reached " in line:
        line = REACHED.sub(rb"\1: \2", line)
    if b"(last best: " in line:  # Marian's, behind an evaluation that is none
        line = line[: line.index(b"(last best: ")]
    if b"bucket " in line:
        line = _BUCKET.sub(rb"\2_bucket_\1", line)
    if b">] " in line or b" ] " in line or b"=] " in line or b"#] " in line or b"-] " in line or b".] " in line:
        count = b" batch " if b"poch" in line else b" step "
        line = _COUNT_BEHIND_BAR.sub(lambda bar: count + bar[1], line)
    if b" rate," in line:
        line = _DARKNET.sub(rb"\1 loss", line)
    return line


def _share(found: re.Match[bytes]) -> bytes:
    """`acc=5401/10000` as `acc=0.5401`; itself where more are right than there are, or few are looked at."""
    right, count = int(found[2]), int(found[3])
    said = found[4] is not None and right <= count > 0 and abs(float(found[4]) - right / count) < _NEAR  # `3/10 (0.3)`
    return b"%s%.6g" % (found[1], right / count) if said or max(right, _EXAMPLES) <= count else found[0]


def _step_and_loss(found: re.Match[bytes]) -> bytes:
    """`3/600 [00:09<20:00, 2.1s/it]2, 2.31` as `step 2, loss: 2.31`, where the bar counts the same steps."""
    same = int(found[1]) - int(found[3]) in (0, 1)
    return b" step %s, loss: %s" % (found[3], found[4]) if same else found[0]


def _epoch_and_batch(found: re.Match[bytes]) -> bytes:
    """`[1/25][300/3183]` as `epoch 1 batch 300/3183`."""
    batch = found[5] or b"%s/%s" % (found[3], found[4])
    return b"%sepoch %s batch %s" % (found[1], found[2], batch)


def _each_with_its_own(found: re.Match[bytes]) -> bytes:
    """`loss1,loss2 2.31 0.4` as `loss1=2.31, loss2=0.4`; the first may be a word for the data: `val, step, loss`."""
    names, values = found[1].replace(b" ", b"").split(b","), found[2].replace(b",", b" ").split()
    data = names.pop(0) + b" " if len(names) == len(values) + 1 and PHASE.fullmatch(names[0]) else b""
    if len(names) != len(values):
        return found[0]
    return data + b", ".join(b"%s=%s" % pair for pair in zip(names, values, strict=True))


def _paired(found: re.Match[bytes]) -> bytes:
    """`(step, loss) = (5, 2.31)` as `step = 5, loss = 2.31`."""
    names, values = _CALL.sub(b"", found[1]).split(b", "), _CALL.sub(b"", found[2]).split(b", ")
    if len(names) != len(values):
        return found[0]
    return b", ".join(b"%s = %s" % pair for pair in zip(names, values, strict=True))


def _parts(found: re.Match[bytes]) -> bytes:
    """`train losses: [0.41, 0.2]` as `train losses_1=0.41, train losses_2=0.2`: no loss is among them by its name."""
    if found[2].count(b",") > 2 and not _SAYS_COUNT.search(found.string, 0, found.start()):
        return found[0]  # a whole history
    name = found[1].rstrip() if found[1].lower().endswith(b"es") else found[1] + b"es"
    return b", ".join(b"%s_%d=%s" % (name, at, part.strip()) for at, part in enumerate(found[2].split(b","), 1))


def _before(found: re.Match[bytes]) -> bytes:
    """`loss (val)` as `val loss`."""
    return b"".join([found[2], b" ", found[1].strip()])


def _of_group(found: re.Match[bytes]) -> bytes:
    """`tot_loss[loss=0.4, simple_loss=0.7]` as `tot_loss=0.4, tot_simple_loss=0.7`."""
    return _OF_GROUP.sub(lambda name: b"%s%s=" % (found[1], name[1]), found[2])


def _named_parts(found: re.Match[bytes]) -> bytes:
    """`loss: {'a': 2.31, 'b': 0.4}` as `a_loss: 2.31, b_loss: 0.4`."""
    return _PART_NAME.sub(lambda name: b"%s: " % (name[1] if b"oss" in name[1] else name[1] + b"_loss"), found[1])


def _parts_of_one(found: re.Match[bytes]) -> bytes:
    """`mask_loss: [last: 2.31 | mean: 2.4]` as `mask_last_loss: 2.31 | mask_mean_loss: 2.4`."""
    return _PART_NAME.sub(lambda name: b"%s%s_loss: " % (found[1], name[1]), found[2])
