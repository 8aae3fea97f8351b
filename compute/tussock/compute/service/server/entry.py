"""`MODULE:APP`, the name of an application in Python code, becomes an application."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tussock.compute.service.server.layer import Servable
from tussock.statestore import StateStore
from tussock.statestore.errors import InvalidOption, TussockError

__all__ = ["BadApplication", "load_application"]


class BadApplication(InvalidOption):
    """What `MODULE:APP` names is no application."""


def load_application(named: str, open_store: Callable[[], StateStore | None], url: str) -> Servable:
    """Import the module, from the working folder too, and get the application or make it with the store.

    `open_store` is called for a function `app(store)` only; an application that is there has a store, which has to be
    the one at `url` unless that is empty. Raises `BadApplication`, and what opening the store raises.
    """
    module_name, separator, path = named.partition(":")
    parts = [*module_name.split("."), *path.split(".")]
    if not separator or not all(part.isidentifier() for part in parts):
        raise BadApplication(f"{named!r:.200} names no application; expected MODULE:APP, such as shop.votes:make_app")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    found = _import(named, module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise BadApplication(f"{named}: module {module_name!r} has no {path!r}")
        found = getattr(found, part)
    if isinstance(found, Servable) and not isinstance(found, type):
        _check_store(named, found, url)
        return found
    if not callable(found):
        raise BadApplication(f"{named} is of type {type(found).__name__}; expected an application, or a function of it")
    store = open_store()
    if store is None:
        raise BadApplication(f"{named} is a function, which is given a store: say which with --store URL")
    made = _make(named, found, store)
    if not isinstance(made, Servable):
        raise BadApplication(f"{named} returned {type(made).__name__}; expected an application, such as procedures.App")
    return made


def _import(named: str, module_name: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise BadApplication(f"{named}: there is no module {error.name!r} here, nor installed") from None
        raise BadApplication(f"{named}: its import failed: {_told(error)}") from error
    except TussockError:
        raise
    except (Exception, SystemExit) as error:  # of the user's module, which may raise anything
        raise BadApplication(f"{named}: its import failed: {_told(error)}") from error


def _make(named: str, function: Callable[[StateStore], Any], store: StateStore) -> Any:
    try:
        return function(store)
    except TussockError:
        raise
    except (Exception, SystemExit) as error:  # of the user's function, as above
        raise BadApplication(f"{named} raised {_told(error)}") from error


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _check_store(named: str, application: Servable, url: str) -> None:
    own = application.served().store_url
    if url and own.rstrip("/") != url.rstrip("/"):
        raise BadApplication(
            f"{named} is an application with a store, at {own}; leave --store {url} out, or name a function of a store"
        )
