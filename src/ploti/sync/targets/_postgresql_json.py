"""JSON between the contract's canonical text and `jsonb`, which keeps numbers as decimals (D2.2, D5.6).

`jsonb` drops an exponent and the sign of zero, so `1e+16` would come back as the integer. Such numbers are stored with
decimals that say so: `1e+16` as `10000000000000000.0`, `-0.0` as `0.00`. Their values are the same.
"""

import json
import re
from decimal import Decimal
from typing import Final

ODD: Final = r"[0-9][eE][+-]?[0-9]|-0(\.0+)?([^0-9.]|$)"
"""A regular expression, for RE2 as well, that finds every text with such a number and few others."""
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?')
_MINUS_ZERO: Final = "0.00"


def stored_json(text: str) -> str:
    """Give a canonical text as the one that `jsonb` is made of."""
    return _TOKEN.sub(lambda found: _stored_token(found[0]), text)


def _stored_token(token: str) -> str:
    if token.startswith('"'):
        return token
    if token in {"-0", "-0.0"}:
        return _MINUS_ZERO
    if "e" not in token and "E" not in token:
        return token
    plain = format(Decimal(token), "f")
    return plain if "." in plain else f"{plain}.0"


def canonical_json(text: str) -> str:
    """Give the canonical text of what `jsonb` gives back: names sorted, no spaces, floats in their shortest form."""
    return json.dumps(json.loads(text, parse_float=_number), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _number(token: str) -> float:
    return -0.0 if token == _MINUS_ZERO else float(token)
