"""The help of commands that ask a meta service says where a token comes from."""

import pytest

from tussock.cli.commands.backup import backup

ASKING = {"create", "list", "delete"}
"""`restore` reads the bucket."""


@pytest.mark.parametrize("name", sorted(ASKING))
def test_help_of_backups_names_the_variable_of_the_token(name: str) -> None:
    """As that of all other commands."""
    [command] = [one for one in backup.registered_commands if (one.name or one.callback.__name__) == name]
    assert "TUSSOCK_TOKEN_FILE" in (command.callback.__doc__ or "")
