"""Steps, epochs, losses and accuracies in other languages than English.

In:   `第3轮 损失: 2.31`, `Schritt 3 von 40, Trainingsverlust: 2.31`.
Out:  `epoch 3 loss: 2.31`, `step 3 of 40, train loss: 2.31`.
"""

from __future__ import annotations

import re

from barograph.core.patterns import expression

_WORDS = {  # as they are written in Chinese, Japanese, Korean and Russian
    word.encode(): b" %s " % meaning
    for meaning, words in (
        (b"epoch", ("轮次", "轮数", "轮", "世代", "エポック", "에포크", "에폭", "эпоха", "Эпоха", "эпохи", "ЭПОХА")),
        (b"step", ("步数", "步骤", "步", "ステップ", "스텝", "단계", "шаг", "Шаг")),
        (b"iteration", ("迭代次数", "迭代", "反復回数", "反復", "반복", "итерация", "Итерация")),
        (b"batch", ("批次", "バッチ", "배치", "батч", "Батч")),
        (b"train", ("训练集", "训练", "訓練", "学習", "학습", "훈련", "на обучении", "обучения", "на тренировке")),
        (b"val", ("验证集", "验证", "検証", "검증", "на валидации", "валидации", "Валидация")),
        (b"test", ("测试集", "测试", "テスト", "테스트", "на тесте")),
        (b"avg", ("平均", "평균", "средняя", "Средняя", "средние", "Средние")),
        (b"iteration", ("训练次数", "学習回数", "イテレーション", "이터레이션")),
        (b"", ("次", "回")),
        (b"current", ("当前", "現在の", "현재")),
        (b"total", ("总",)),
        (
            b"loss",
            (
                "损失函数",
                "代价函数",
                "損失関数",
                "비용",
                "로스",
                "损失值",
                "损失",
                "誤差",
                "误差",
                "損失",
                "손실값",
                "손실 값",
                "손실",
                "오차",
                "функция потерь",
                "Функция потерь",
                "потери",
                "Потери",
                "потеря",
                "Потеря",
                "потерь",
                "ошибка",
                "Ошибка",
            ),
        ),
        (b"accuracy", ("准确率", "正确率", "精度", "正解率", "정확도", "точность", "Точность")),
        (b"lr", ("学习率", "学習率", "학습률", "скорость обучения")),
        (b"reward", ("奖励", "報酬", "보상", "награда", "Награда")),
    )
    for word in words
}
_LONGEST_FIRST: list[bytes] = sorted(_WORDS, key=len, reverse=True)
_OTHER_WORDS = expression(b"|".join(_LONGEST_FIRST))
_FOREIGN = expression(rb"[\xd0-\xed]")
_ORDINAL = expression(
    rb"\xe7\xac\xac\s?(\d{1,9})\s?(\xe8\xbd\xae|\xe6\xad\xa5|\xe6\x89\xb9)"
)  # `第3轮`, `第3步`, `第3批`
_BLANKS = expression(rb" {2,80}")
_COUNTED = expression(  # `5ステップ目`, `5번째 스텝`, `第 5 次迭代`
    ("(?:第 ?)?([0-9]{1,12}) ?(?:번째 |回目の|次)?(ステップ|エポック|반복|스텝|에포크|迭代)(?:目)?").encode()
)
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
    "accuracy": r"exactitud|exactitude|precisión|acur[aá]cia|acc?uratezza",
    "reward": r"recompensas?|r[eé]compenses?|ricompens[ae]|belohnung(?:en)?",
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
_OUT_OF = expression(rb"(?i)(?<=\d) (?:von|van|z|de|di|sur|su) (?=\d)")
_OTHERS = {  # as they are written in other languages with Latin letters, and in Ukrainian
    "mean": "mittlere[rn]?|durchschnittliche[rn]?|średnia|gemiddelde?",
    "step": "Крок|ad(?:ı|i)m(?:ı|i)?|kroku?|stap|bước|steg|trin|lernschritt|крок|paso|passo|étape",
    "iteration": "İterasyon|Ітерація|i?terasyon|iteracj[ai]|iteratie|iterasi|iterace|durchlauf|durchgang|iteración|"
    "itération|iterazione|ітерація|vòng lặp",
    "epoch": "Епоха|tijdperk|kỷ nguyên|епоха|époque|época",
    "batch": "lote|lot",
    "train": "eğitim|treningow[aey]|huấn luyện|навчання|d'entra(?:i|î)nement|de entrenamiento|di addestramento",
    "val": "doğrulama|walidacyjn[aey]|validatie|xác thực|валідації",
    "loss": "kayıp|kaybı|(?:funkcja )?strat[ay]|(?:trainings)?verlies|(?:hàm )?mất mát|(?:функція )?втрат(?:и)?|"
    "förlust|tap|tab|(?:trainings)?fehler|kosten|costo|co(?:u|û)t|erreur|ztráta|veszteség|kerugian",
    "accuracy": "doğruluk|dokładność|nauwkeurigheid|độ chính xác|точність|noggrannhet|nøyaktighet",
}
_EDGES = (rb"(?i)(?<![A-Za-z\x80-\xff'])(?:", rb")(?![A-Za-z\x80-\xff'])")
_OTHER_WORD = expression("|".join(f"(?P<{name}>{words})" for name, words in _OTHERS.items()).encode().join(_EDGES))
_OTHER_LOSS = expression(
    _OTHERS["loss"].encode().join(_EDGES)
    + f"(?: (?:{_OTHERS['train']}|{_OTHERS['val']}))?".encode()
    + rb"[ :=]{1,4}[-+]?(?:\d{0,9}[.,]\d{1,15}(?:e[-+]?\d{1,3})?|\d{1,3}e[-+]?\d|nan|inf)(?!\d|[.,]\d)"
    + "(?! ?(?:Euro|EUR|€|zł|kr|Kč|TL|₺|₫|грн|%))".encode()
)
_GERMAN = expression(
    rb"(?i)(?<![a-z])(?:(?:(?P<train>trainings?)|(?P<val>validierungs?)|(?P<test>tests?)|"
    rb"(?P<mean>durchschnitts|mittlerer)|gesamt)[ _-]?)?(?:(?P<loss>verlust)|(?P<accuracy>genauigkeit))(?![a-z])"
)
_ROMANCE = _pattern("(?:" + "|".join(f"(?P<{name}>{words})" for name, words in _MEASURES.items()) + ")" + _OF_DATA)
_RATE = _pattern(
    r"(?:lernrate|tasa de aprendizaje|taux d'apprentissage|taxa de aprendiza(?:do|gem)|"
    r"tasso(?: di apprendimento)?)(?=\s?[:=])"
)
_MAY = expression(
    rb"(?i)erlust|genauigkeit|p\S{1,2}rdida|perte|perda|perdit|custo|ac+ura|exactitud|precisi|ompens|elohn"
)
_MEAN_OF = expression(rb"(?i)(?<![a-z])reward (?:moyenn?e?|promedio|medi[ao]|m\xc3\xa9di[ao])(?=\s?[:=(])")
_MAY_COUNT = expression(rb"(?i)(?:chritt|aso|asso|tape|epo\w+|po[cq]\w{1,3}|ra\S{1,5}n|razione|\xa3o)[ :=#\[(]{1,4}\d")


def in_english(line: bytes) -> bytes:
    """A line with the English words for what it counts and measures."""
    if _FOREIGN.search(line):
        line = _ORDINAL.sub(_ordinal, line).replace(b"\xe3\x80\x90", b"[").replace(b"\xe3\x80\x91", b"] ")
        line = _COUNTED.sub(rb" \2 \1 ", line)
        line = _OTHER_WORDS.sub(lambda found: _WORDS[found[0]], line)
        line = _BLANKS.sub(b" ", line)
    before = line
    if _MAY_COUNT.search(line):
        line = _OUT_OF.sub(b" / ", _COUNT.sub(_word, line))
    if _MAY.search(line):
        line = _RATE.sub(b"lr", _ROMANCE.sub(_word, _GERMAN.sub(_word, line)))
    if b"eward m" in line or b"eward p" in line:  # of those who say the word itself in English
        line = _MEAN_OF.sub(b"mean reward", line)
    if _OTHER_LOSS.search(line) or (line is not before and b"loss" in line):
        line = _OUT_OF.sub(b" / ", _OTHER_WORD.sub(_word, line))
    return line


def _ordinal(found: re.Match[bytes]) -> bytes:
    """`第3批` as `batch 3`."""
    return b" %s %s " % ({"批": b"batch"}.get(found[2].decode(), found[2]), found[1])


def words_in_english(line: bytes) -> bytes:
    """The heading of a table with the English words for what its columns count and measure."""
    if _FOREIGN.search(line):
        line = _BLANKS.sub(b" ", _OTHER_WORDS.sub(lambda found: _WORDS[found[0]], line)).strip()
    return _NAMES.sub(_word, _ROMANCE.sub(_word, _GERMAN.sub(_word, line)))


def _word(found: re.Match[bytes]) -> bytes:
    """The names of the groups that were found, those of data first: `val loss`."""
    said = [name for name, text in found.groupdict().items() if text]
    return " ".join(sorted(said, key=lambda word: word in ("loss", "accuracy"))).encode()
