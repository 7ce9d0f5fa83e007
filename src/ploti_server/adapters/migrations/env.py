"""Alembic's entry: runs migrations on the connection that the store hands over, inside its transaction."""

from typing import Any, Literal

from alembic import context

from ploti_server.adapters.store_tables import Moment, metadata


def _render(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    return "sa.BigInteger()" if kind == "type" and isinstance(item, Moment) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    compare_type=True,
    render_item=_render,
)
with context.begin_transaction():
    context.run_migrations()
