"""The form of a meta service's settings, and the settings of this process."""

from collections.abc import Mapping

from tussock.meta.node.settings.sources import SettingsForm, load_form
from tussock.meta.server.settings.model import MetaSettings, contradictions

__all__ = ["META_FORM", "load_settings"]

META_FORM = SettingsForm(MetaSettings, "TUSSOCK_META_", contradictions, {"store": "s3://unknown"})
"""Of the scheme with which everything else can be set."""


def load_settings(flags: Mapping[str, str], environ: Mapping[str, str], file: str | None = None) -> MetaSettings:
    """The settings of a replica of the meta service; see `load_form`."""
    return load_form(META_FORM, flags, environ, file)
