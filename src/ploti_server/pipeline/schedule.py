"""Tells which datasets are due for a check."""

from ploti_server.ports import Ports


def due_datasets(ports: Ports) -> tuple[str, ...]:
    """List the datasets that a subscription includes and whose check is due, by id (D13.4)."""
    now = ports.clock.now()
    with ports.store.read() as records:
        return tuple(
            dataset.id
            for dataset in records.catalog.datasets()
            if not dataset.retired
            and ((due := records.catalog.refresh(dataset.id).next_check_by) is None or due <= now)
            and records.subscriptions.holding(dataset.id)
        )
