"""What known measures are called in printed lines.

In:   nothing.
Out:  expressions for the name of a loss, an accuracy, a rate, a norm, and for the words that stand before one.
"""

from __future__ import annotations

from barograph.core.patterns import expression

SCORES = (  # of images, segmentations, rankings and classifiers: higher is better but for the last ones
    rb"psnr|ssim|lpips|fid|dice(?:[-_ ](?:score|coeff?(?:icient)?))?|dsc|(?:m|fw)?iou\d?|mean[ _]iu|jaccard|hd95|"
    rb"precision|recall|ndcg|mrr|"
    rb"hit(?:[-_ ]?rate)?|auroc|auprc|kappa|r2"
)
MEASURE = (
    rb"(?:(?:[a-z0-9]{1,24}[_/.-]{1,2}){0,4}(?:[a-z]{0,24}loss(?:es)?(?:per[a-z]{3,10})?|nll|"
    rb"neg(?:ative)?[_ -]log[_ -]likelihood|ce|"
    rb"xe|x-?ent(?:ropy)?|cross[-_ ]?ent(?:ropy)?|acc(?:uracy)?|pplx?|perplexity|bpb|bpc|lr|l\.r\.?|"
    rb"learning[_ ]rate|err(?:or)?|"
    rb"(?:grad[_ ]?)?norm|gnorm|(?:mean|avg|average|max|min|total|ep|episode)?rew(?:ard)?s?|"
    rb"return|bce|huber|score|f1|[wce]er|chrf|meteor|[a-z]{0,8}deviance|"
    rb"bleu|rouge|auc|map|prec(?=@)|mse|mae|rmsl?e|s?mape|mfu|tflops|tps|wps|"
    rb"tok(?:ens)?/s(?:ec)?|tokens_per_sec(?:ond)?|throughput|elbo|kl(?:[ _]divergence)?|entropy|objf?|top[-_]?[15]|"
    + SCORES
    + rb"|l_(?:[gd]_)?(?:total|pix|pixel|percep|perceptual|fea|gan|real|fake|style|rec|cls|char|edge))"
    rb"(?:[@_/.-][a-z0-9]{1,24}){0,3}"
    rb"|(?:(?:train(?:ing)?|val(?:id)?|test|avg|average|mean|total|current|curr)[_/ ]?)?(?:cost|objective|criterion)"
    rb"|(?:word|char(?:acter)?|phone|token|equal)[_ ]error[_ ]rate|exact[_ ]match|"
    rb"l[12](?= \d{1,6}\.\d{6}))"  # of an image; as a setting it has fewer digits
)
OF = (
    rb"(?:(?:train(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?|dev|test(?:ing)?|h[eo]ld[-_ ]?out|mean|average|avg|"
    rb"total|generator|discriminator|critic|actor|policy|value|recon(?:struction)?|kl|ctc|att(?:ention)?|aux(?:iliary)?|"
    rb"contrastive|adversarial|perceptual|content|style|mel|duration|pitch|dice|b?box|mask|cls|class(?:ification)?|reg(?:ression)?|giou)"
    rb"[ ]){0,2}"
)
SCORE = expression(  # a name of such a score, whatever it is about
    r"(?i)\A(?:.*[^a-z0-9])?(?:" + SCORES.decode() + r"|top[-_]?[15](?:[_ -]acc(?:uracy)?)?|auc|f1(?:[ _-]score)?|"
    r"bleu|[wce]er|(?:word|char(?:acter)?|phone|token|equal)[ _]error[ _]rate|exact[ _]match)(?:@\d{1,4}|_\d{1,2})?"
)
LAST_WORD = expression(rb"(?i)(?:^|[ \]])(" + MEASURE + rb")$")
ACCURACY = expression(r"(?i)(?:(?:val|valid|validation|test|eval|train|training) )?acc(?:uracy)?")
NEVER_WHOLE = expression(rb"(?i)\A(?:.*[^a-z0-9])?(?:" + SCORES + rb")(?:@\d{1,4})?")  # `precision: 16` is of numbers
