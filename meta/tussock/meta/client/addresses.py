"""The replicas of a meta service, as a URL names them."""

from tussock.statestore.errors import InvalidOption

__all__ = ["addresses_in"]


def addresses_in(url: str) -> list[str]:
    """The replicas in `tussock://host:port,host2:port`, or in that without the scheme; `InvalidOption` if none are."""
    rest = url.removeprefix("tussock://").rstrip("/")
    addresses = rest.split(",")
    for address in addresses:
        host, _, port = address.rpartition(":")
        # A blank, as after a comma, would be looked up as a part of the name until the deadline.
        is_host = host.isprintable() and not set(host) & set(" @/")
        if not host or not is_host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            shown = url if "@" not in url else "tussock://***"
            raise InvalidOption(
                f"{shown!r} does not name a meta service: expected HOST:PORT, or several with commas between"
            )
    return addresses
