"""Passes notices on to the operator's own command or address; both belong to the operator, so any host will do."""

import json
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from ploti_server.domain.notices import Notify

COMMAND_SECONDS: Final = 60
CALL_SECONDS: Final = 15


class OwnNotifier:
    """`Notifier` that runs a command with the notice as JSON on its input, POSTs it to an address, or both."""

    def __init__(self, notify: Notify, *, command_seconds: float = COMMAND_SECONDS) -> None:
        self._notify, self._seconds = notify, command_seconds

    def send(self, told: Mapping[str, Any]) -> str | None:
        """Pass a notice on; tells what went wrong, None where it arrived everywhere."""
        text = json.dumps(told, ensure_ascii=False)
        ran = self._run(self._notify.command, text) if self._notify.command else None
        return ran or (_post(self._notify.url, text) if self._notify.url else None)

    def _run(self, command: str, text: str) -> str | None:
        try:
            arguments = shlex.split(command)
            done = subprocess.run(  # the operator's own command, without a shell
                arguments, input=text.encode(), capture_output=True, timeout=self._seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return f"notify_command did not end within {self._seconds:g} seconds"
        except (OSError, ValueError) as error:
            return f"notify_command cannot be run: {error}"
        return f"notify_command ended with {done.returncode}" if done.returncode else None


def _post(url: str, text: str) -> str | None:
    import httpx2

    try:
        answer = httpx2.post(
            url, content=text.encode(), headers={"content-type": "application/json"}, timeout=CALL_SECONDS
        )
    except httpx2.HTTPError as error:
        return f"notify_url cannot be reached: {type(error).__name__}"
    return None if answer.is_success else f"notify_url answered {answer.status_code}"
