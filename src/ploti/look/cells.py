"""Texts that a spreadsheet would run as a formula, in CSV that people open with one (F080)."""

import re
from typing import Final

FORMULA: Final = r"[=+\-@\t\r\n＝＋－＠]"  # the wide forms are taken for the narrow ones
"""How a text begins that a spreadsheet takes for a formula, unless the whole is a number."""
NUMBER: Final = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


def disarmed(text: str) -> str:
    """Put an apostrophe ahead of a text that would be run; a negative number stays as it is."""
    return f"'{text}" if re.match(FORMULA, text) and not re.fullmatch(NUMBER, text) else text
