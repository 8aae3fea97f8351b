"""How a value that a user gave is shown in a message, whatever it is."""

__all__ = ["show_value"]


def show_value(value: object) -> str:
    """Its `repr`, cut to 100 characters; if that fails, as of some of Arrow's objects and of deep lists, its class."""
    try:
        return f"{value!r:.100}"
    except Exception:  # noqa: BLE001 - whatever foreign code raises, the message is about the value
        return f"a value of type {type(value).__name__}"
