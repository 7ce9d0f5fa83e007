"""SDK of Ploti Data Feeds.

`ploti.feeds`, `ploti.places`, `ploti.topics` and `ploti.webhooks` use a client made at first use from the environment
or `ploti login`; `ploti.Client` makes your own. Everything is loaded at first use, so that `import ploti` costs next to
nothing.
"""

TYPE_CHECKING = False  # importing typing would double the cost of this import
if TYPE_CHECKING:
    from ploti._client import Client as Client
    from ploti._http import Retries as Retries
    from ploti._resources import Feeds, Places, Topics, Webhooks
    from ploti.errors import BadAnswer as BadAnswer
    from ploti.errors import BadSignature as BadSignature
    from ploti.errors import FixRequest as FixRequest
    from ploti.errors import LinkExpired as LinkExpired
    from ploti.errors import NoAnswer as NoAnswer
    from ploti.errors import NotAllowed as NotAllowed
    from ploti.errors import NotDelivered as NotDelivered
    from ploti.errors import NotFound as NotFound
    from ploti.errors import PlotiError as PlotiError
    from ploti.errors import ReadAgain as ReadAgain
    from ploti.errors import Reload as Reload
    from ploti.errors import RetryLater as RetryLater

    feeds: Feeds
    places: Places
    topics: Topics
    webhooks: Webhooks
    __version__: str

__all__ = [
    "BadAnswer",
    "BadSignature",
    "Client",
    "FixRequest",
    "LinkExpired",
    "NoAnswer",
    "NotAllowed",
    "NotDelivered",
    "NotFound",
    "PlotiError",
    "ReadAgain",
    "Reload",
    "Retries",
    "RetryLater",
    "__version__",
    "feeds",
    "places",
    "topics",
    "webhooks",
]

_RESOURCES = ("feeds", "places", "topics", "webhooks")
_HOMES = {"Client": "ploti._client", "Retries": "ploti._http"}


def __getattr__(name: str) -> object:
    """Load a public name at first use and keep it."""
    if name not in __all__:
        raise AttributeError(f"module 'ploti' has no attribute {name!r}")
    if name in _RESOURCES:
        _make_default()
        return globals()[name]
    if name == "__version__":
        from importlib.metadata import version

        found: object = version("ploti")
    else:
        from importlib import import_module

        found = getattr(import_module(_HOMES.get(name, "ploti.errors")), name)
    globals()[name] = found
    return found


def _make_default() -> None:
    """Make the default client and set the resources from it."""
    from ploti._client import Client

    client = Client()
    for resource in _RESOURCES:
        globals()[resource] = getattr(client, resource)


def __dir__() -> list[str]:
    return sorted(__all__)
