"""A small drawing board: smooth lines, dots and stroked letters on white, saved as a PNG.

In:   coordinates in pixels from the top left, colours as (red, green, blue) from 0 to 255.
Out:  the bytes of a PNG file, the same for the same drawing.

A picture of the width check then needs no plotting library.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from barograph.core import png
from barograph.views.draw.palette import Rgb

# Letters as strokes: points "xy" on a grid 4 wide and 6 high (to 8 below the line), strokes parted by blanks.
_GLYPHS = {
    "A": "062046 1434", "B": "00063645443303 0030414233", "C": "4130100105163645", "D": "00062644422000",
    "E": "40000646 0333", "F": "400006 0333", "G": "41301001051636454323", "H": "0006 4046 0343",
    "I": "1030 2026 1636", "J": "4045361605", "K": "0006 4003 1246", "L": "000646", "M": "0600234046",
    "N": "06004640", "O": "103041453616050110", "P": "06003041423303", "Q": "103041453616050110 2446",
    "R": "06003041423303 2346", "S": "413010010213334445361605", "T": "0040 2026", "U": "000516364540",
    "V": "002640", "W": "0016223640", "X": "0046 4006", "Y": "002340 2326", "Z": "00400646",
    "a": "4246 4332120305163645", "b": "0006 0312324345361605", "c": "4332120305163645",
    "d": "4046 4332120305163645", "e": "04444332120305163645", "f": "40302126 1232",
    "g": "4247381807 4332120305163645", "h": "0006 0312324346", "i": "2226 2020", "j": "32372818 3030",
    "k": "0006 4204 2346", "l": "202536", "m": "0206 03122326 23324346", "n": "0206 0312324346",
    "o": "123243453616050312", "p": "0208 0312324345361605", "q": "4248 4332120305163645", "r": "0206 031232",
    "s": "43321203143445361605", "t": "10152636 0232", "u": "0205163645 4246", "v": "022642",
    "w": "0216233642", "x": "0246 4206", "y": "0226 4218", "z": "02420646",
    "0": "103041453616050110", "1": "112026 1636", "2": "01103041420646", "3": "01103041423313 334445361605",
    "4": "36300444", "5": "400003334445361605", "6": "413010010516364544331304", "7": "004016",
    "8": "103041423313020110 1304051636454433", "9": "051636454130100102133342",
    ".": "2626", ",": "2617",
    ":": "2323 2626", ";": "2323 2617", "!": "2024 2626", "?": "01103041422324 2626",
    "-": "0343", "+": "0343 2125", "_": "0747", "/": "4006",
    "(": "30212536", ")": "10212516", "[": "30101636", "]": "10303616", "#": "1016 3036 0242 0444",
    "%": "4006 1010 3636", "=": "0242 0444", "|": "2026", "*": "2125 0244 4204", "'": "2021",
    "<": "410345", ">": "014305", "^": "022042", "±": "0343 2125 0646", "Δ": "06204606",
}  # fmt: skip
ADVANCE = 5.5  # from one letter to the next, in grid units


class Board:
    """A white board of width × height pixels."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._pixels = np.full((height, width, 3), 255.0, np.float32)

    def line(self, x0: float, y0: float, x1: float, y1: float, colour: Rgb, thick: float = 1.0) -> None:
        """A straight line with round ends; a dot where both ends are the same."""
        if not all(map(math.isfinite, (x0, y0, x1, y1))):
            return
        reach = thick / 2 + 1
        left, right = max(int(min(x0, x1) - reach), 0), min(int(max(x0, x1) + reach) + 1, self.width)
        top, bottom = max(int(min(y0, y1) - reach), 0), min(int(max(y0, y1) + reach) + 1, self.height)
        if left >= right or top >= bottom:
            return
        y, x = np.mgrid[top:bottom, left:right] + 0.5
        along, down = x1 - x0, y1 - y0
        length = along * along + down * down
        share = np.clip(((x - x0) * along + (y - y0) * down) / length, 0, 1) if length else 0.0
        distance = np.hypot(x - x0 - share * along, y - y0 - share * down)
        cover = np.clip(thick / 2 + 0.5 - distance, 0, 1)[..., None].astype(np.float32)
        area = self._pixels[top:bottom, left:right]
        area += (np.array(colour, np.float32) - area) * cover

    def text(self, x: float, y: float, words: str, colour: Rgb = (40, 40, 40), size: float = 1.5) -> None:
        """Letters from x on, their tops at y; `size` pixels a grid unit (6 of them high)."""
        for letter in words:
            for stroke in _GLYPHS.get(letter, "" if letter == " " else "0040460600").split():
                pairs = zip(stroke[::2], stroke[1::2], strict=True)
                points = [(x + int(across) * size * 0.9, y + int(down) * size) for across, down in pairs]
                for (x0, y0), (x1, y1) in itertools.pairwise(points):
                    self.line(x0, y0, x1, y1, colour, 0.75 * size)
            x += ADVANCE * size * 0.9

    def save(self) -> bytes:
        """The board as a PNG."""
        pixels = np.rint(self._pixels).astype(np.uint8)
        return png.encode(pixels.tobytes(), pixels.shape[1], pixels.shape[0], 3)


def text_width(words: str, size: float = 1.5) -> float:
    """Pixels that the words take."""
    return len(words) * ADVANCE * size * 0.9
