"""Objects with changed bytes, each given to what decodes it: with the old checksum, and with one that fits."""

import random
from pathlib import Path

from support.depth import DEPTH
from support.models.mutations import mutate_and_read, objects_of_a_store


def test_changed_objects_are_refused_or_read_to_their_end(tmp_path: Path) -> None:
    """Never another error than one of the store; `make mutations COUNT=1000000` for more."""
    objects = objects_of_a_store((tmp_path / "store").as_uri())
    assert {one.kind for one in objects} == {"entry", "base", "pin", "backup", "meta", "block"}
    for number in range(2000 * DEPTH):
        chance = random.Random(number)
        one = chance.choice(objects)
        try:
            mutate_and_read(one, chance)
        except Exception as error:
            raise AssertionError(f"mutation {number} of an object of kind {one.kind}") from error
