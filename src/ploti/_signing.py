"""Which requests carry the API key: those to the API's own origin, and no other; and whether a webhook is signed."""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from secrets import token_bytes
from typing import Any
from urllib.parse import urlsplit

from ploti.contract.webhooks import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, TOLERANCE_SECONDS
from ploti.errors import BadAnswer, BadSignature, FixRequest

_PORTS = {"http": 80, "https": 443}


def authorization(api_key: str, base_url: str, url: str) -> dict[str, str]:
    """Give the header that proves who calls; empty for an address of another scheme, host or port."""
    return {"authorization": f"Bearer {api_key}"} if origin(url) == origin(base_url) else {}


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Give the scheme, host and port of an address."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def verified(body: bytes | str, headers: Mapping[str, str], secret: str, now: float) -> dict[str, Any]:
    """Check a webhook's signature after Standard Webhooks and give its body as an object; `now` in Unix seconds.

    Header names are read in any case. Raises BadSignature, and FixRequest for a secret that is none.
    """
    content = body.encode() if isinstance(body, str) else bytes(body)
    named = {name.lower(): value for name, value in headers.items()}
    try:
        message_id, moment, signatures = (named[name] for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER))
    except KeyError as missing:
        raise _bad(f"The request lacks the header {missing.args[0]}: it is no delivery of a webhook.") from None
    if not re.fullmatch("[0-9]{1,12}", moment) or abs(now - int(moment)) > TOLERANCE_SECONDS:
        raise _bad("The delivery's time is more than five minutes away: check this machine's clock.")
    expected = hmac.new(_key(secret), f"{message_id}.{moment}.".encode() + content, hashlib.sha256).digest()
    if not any(_is_signature(one, expected) for one in signatures.split(" ")):
        raise _bad("No signature fits: refuse the delivery, or check the secret and that the body is unchanged.")
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadAnswer("The delivery is signed, but its body is no JSON object.", code="bad_answer")
    return found


def signed(body: bytes, message_id: str, secrets: Sequence[str], now: float) -> dict[str, str]:
    """Give the headers of a delivery, signed with each secret after Standard Webhooks; `now` in Unix seconds."""
    moment = str(int(now))
    content = f"{message_id}.{moment}.".encode() + body
    digests = [hmac.new(_key(secret), content, hashlib.sha256).digest() for secret in secrets]
    return {
        "content-type": "application/json",
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: moment,
        SIGNATURE_HEADER: " ".join("v1," + base64.b64encode(digest).decode() for digest in digests),
    }


def new_secret() -> str:
    """Make a webhook's secret."""
    return "whsec_" + base64.b64encode(token_bytes(32)).decode()


def check_secret(secret: str) -> None:
    """Raise FixRequest for a secret that is none."""
    _key(secret)


def _bad(message: str) -> BadSignature:
    return BadSignature(message, code="bad_signature")


def _key(secret: str) -> bytes:
    text = secret.strip().removeprefix("whsec_") if isinstance(secret, str) else ""
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        key = b""
    if not key:
        raise FixRequest("Give the webhook's secret as it was shown: whsec_...", code="invalid_input", field="secret")
    return key


def _is_signature(text: str, expected: bytes) -> bool:
    version, _, encoded = text.partition(",")
    try:
        sent = base64.b64decode(encoded, validate=True)
    except ValueError:
        return False
    return version == "v1" and hmac.compare_digest(sent, expected)
