"""The log as lines of JSON, one for each record, with what a record's `fields` name beside it."""

import json
import logging
from datetime import UTC, datetime
from typing import Any


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON; nothing in it can break the line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "at": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class PlainLines(logging.Formatter):
    """Writes a record for a person at a terminal, without control characters of what a caller sent."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        fields = " ".join(f"{name}={value}" for name, value in getattr(record, "fields", {}).items())
        line = f"{record.levelname.lower()}: {record.getMessage()} {fields}".rstrip()
        shown = line.encode("unicode_escape").decode() if fields else line
        return f"{shown}\n{self.formatException(record.exc_info)}" if record.exc_info else shown


def logging_of(as_json: bool) -> dict[str, Any]:
    """Give the settings of the log to standard error: lines of JSON, or plain ones for a person at a terminal."""
    kind = JsonLines if as_json else PlainLines
    loud = {"handlers": ["stderr"], "level": "INFO", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": f"{__name__}.{kind.__name__}"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
        "loggers": {"uvicorn": loud, "ploti_server": loud},
    }
