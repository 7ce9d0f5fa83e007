"""The API's OpenAPI description: made by the framework, with the key's scheme and without answers it never gives."""

from collections.abc import Sequence
from typing import Any, Final

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from ploti_server.api.direct import Direct
from ploti_server.api.dispatch import Dispatched
from ploti_server.api.documented import error_schemas
from ploti_server.api.metrics import Metrics
from ploti_server.api.observe import Observed

_PUBLIC_TAG: Final = "Files"
_NEVER_SENT: Final = "422"
_UNUSED: Final = ("HTTPValidationError", "ValidationError")


class Api(FastAPI):
    """A FastAPI application that describes itself truly and is observed from outside everything else."""

    def __init__(self, metrics: Metrics, **options: Any) -> None:
        super().__init__(**options)
        self._metrics = metrics
        self._served: ASGIApp = super().__call__

    def serve(self, routes: Sequence[Dispatched]) -> None:
        """Serve the API's own routes before the framework; what either answers is observed whole."""
        self._served = Observed(Direct(super().__call__, routes), self._metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self._served(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Give the OpenAPI 3.1 description."""
        if self.openapi_schema is None:
            described = super().openapi()
            for operations in described["paths"].values():
                for operation in operations.values():
                    _correct(operation)
            components = described.setdefault("components", {})
            schemas = components.setdefault("schemas", {})
            schemas.update(error_schemas())
            for name in _UNUSED:
                schemas.pop(name, None)
            components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}}
            self.openapi_schema = described
        return self.openapi_schema


def _correct(operation: dict[str, Any]) -> None:
    operation["responses"].pop(_NEVER_SENT, None)
    if _PUBLIC_TAG not in operation.get("tags", ()):
        operation["security"] = [{"key": []}]
