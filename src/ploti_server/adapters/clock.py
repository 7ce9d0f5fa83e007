"""The machine's clock."""

from datetime import UTC, datetime


class SystemClock:
    """`Clock` that reads the machine's time."""

    def now(self) -> datetime:
        """Give the present moment in UTC, cut to milliseconds (D1.4)."""
        moment = datetime.now(UTC)
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
