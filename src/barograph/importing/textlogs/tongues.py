"""Steps, epochs, losses and accuracies in other languages than English.

In:   `第3轮 损失: 2.31`, `Schritt 3 von 40, Trainingsverlust: 2.31`.
Out:  `epoch 3 loss: 2.31`, `step 3 of 40, train loss: 2.31`.
"""

from __future__ import annotations

import re

from barograph.importing.textlogs.patterns import expression

_WORDS = {  # as they are written in Chinese, Japanese, Korean and Russian
    word.encode(): b" %s " % meaning
    for meaning, words in (
        (b"epoch", ("轮次", "轮", "世代", "エポック", "에포크", "эпоха", "Эпоха")),
        (b"step", ("步数", "步", "ステップ", "스텝", "шаг", "Шаг")),
        (b"iteration", ("迭代次数", "迭代", "反復", "반복", "итерация", "Итерация")),
        (b"train", ("训练集", "训练", "訓練", "学習", "학습", "훈련")),
        (b"val", ("验证集", "验证", "検証", "검증")),
        (b"test", ("测试集", "测试", "テスト", "테스트")),
        (b"avg", ("平均", "평균")),
        (b"loss", ("损失值", "损失", "損失", "손실", "потери", "Потери")),
        (b"accuracy", ("准确率", "精度", "正解率", "정확도", "точность", "Точность")),
        (b"lr", ("学习率", "学習率", "학습률")),
    )
    for word in words
}
_LONGEST_FIRST: list[bytes] = sorted(_WORDS, key=len, reverse=True)
_OTHER_WORDS = expression(b"|".join(_LONGEST_FIRST))
_FOREIGN = expression(rb"[\xd0-\xed]")
_ORDINAL = expression(rb"\xe7\xac\xac\s?(\d{1,9})\s?(\xe8\xbd\xae|\xe6\xad\xa5)")  # `第3轮`, `第3步`
_DATA = {  # of which data a loss or an accuracy is, behind its name: `pérdida de validación`
    "train": r"entrenamiento|aprendizaje|entra[iî]nement|apprentissage|treino|treinamento|addestramento",
    "val": r"validaci[oó]n|validation|valida[cç][aã]o|validazione",
    "test": r"prueba|test|teste",
}
_OF_DATA = (
    r"(?:[ _](?:d[eio]l?|d'|en|sur)?[ _']{0,2}(?:la |l')?(?:"
    + "|".join(f"(?P<{data}>{words})" for data, words in _DATA.items())
    + r"))?"
)
_MEASURES = {
    "loss": r"p[eé]rdidas?|pertes?|perdas?|perdite|perdita|custo",
    "accuracy": r"exactitud|exactitude|precisi[oó]n|acur[aá]cia|acc?uratezza",
}


def _pattern(text: str) -> re.Pattern[bytes]:
    """An expression for UTF-8 text: small letters with an accent match large ones, too."""
    text = re.sub(r"\[(\w)(\w)\]", lambda found: f"(?:{found[1]}|{found[2]}|{found[2].upper()})", text)
    return expression(rb"(?i)(?<![A-Za-z\x80-\xff])(?:" + text.encode() + rb")(?![A-Za-z\x80-\xff])")


_COUNT = _pattern(
    r"(?:(?P<step>schritt|paso|passo|[eé]tape)|(?P<epoch>epochen|epoche|[eé]po(?:que|ca)s?|epok[ai]?)|"
    r"(?P<iteration>iteraci[oó]n|it[eé]ration|itera[cç][aã]o|iterazione))(?=[ :=#\[(]{1,4}\d)"
)
_NAMES = _pattern(  # of columns
    r"(?P<step>schritte?|pasos?|passos?|[eé]tapes?)|(?P<epoch>epochen|epoche|[eé]po(?:que|ca)s?|epok[ai]?)|"
    r"(?P<iteration>iteraci[oó]n|it[eé]ration|itera[cç][aã]o|iterazione)|(?P<lr>lernrate|tasa de aprendizaje|"
    r"taux d'apprentissage|taxa de aprendiza(?:do|gem))"
)
_OUT_OF = expression(rb"(?i)(?<=\d) (?:von|de|di|sur|su) (?=\d)")
_GERMAN = expression(
    rb"(?i)(?<![a-z])(?:(?:(?P<train>trainings?)|(?P<val>validierungs?)|(?P<test>tests?)|"
    rb"(?P<mean>durchschnitts|mittlerer)|gesamt)[ _-]?)?(?:(?P<loss>verlust)|(?P<accuracy>genauigkeit))(?![a-z])"
)
_ROMANCE = _pattern("(?:" + "|".join(f"(?P<{name}>{words})" for name, words in _MEASURES.items()) + ")" + _OF_DATA)
_RATE = _pattern(
    r"(?:lernrate|tasa de aprendizaje|taux d'apprentissage|taxa de aprendiza(?:do|gem)|"
    r"tasso(?: di apprendimento)?)(?=\s?[:=])"
)
_MAY = expression(rb"(?i)erlust|genauigkeit|p\S{1,2}rdida|perte|perda|perdit|custo|ac+ura|exactitud|precisi")
_MAY_COUNT = expression(rb"(?i)(?:chritt|aso|asso|tape|epo\w+|po[cq]\w{1,3}|ra\S{1,5}n|razione|\xa3o)[ :=#\[(]{1,4}\d")


def in_english(line: bytes) -> bytes:
    """A line with the English words for what it counts and measures."""
    if _FOREIGN.search(line):
        line = _OTHER_WORDS.sub(lambda found: _WORDS[found[0]], _ORDINAL.sub(rb" \2 \1 ", line))
        line = line.replace(b"  ", b" ")
    if _MAY_COUNT.search(line):
        line = _OUT_OF.sub(b" / ", _COUNT.sub(_word, line))
    if _MAY.search(line):
        line = _RATE.sub(b"lr", _ROMANCE.sub(_word, _GERMAN.sub(_word, line)))
    return line


def words_in_english(line: bytes) -> bytes:
    """The heading of a table with the English words for what its columns count and measure."""
    if _FOREIGN.search(line):
        line = _OTHER_WORDS.sub(lambda found: _WORDS[found[0]].strip(), line)
    return _NAMES.sub(_word, _ROMANCE.sub(_word, _GERMAN.sub(_word, line)))


def _word(found: re.Match[bytes]) -> bytes:
    """The names of the groups that were found, those of data first: `val loss`."""
    said = [name for name, text in found.groupdict().items() if text]
    return " ".join(sorted(said, key=lambda word: word in ("loss", "accuracy"))).encode()
