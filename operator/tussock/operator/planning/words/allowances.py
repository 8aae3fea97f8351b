"""A number of things, or a percentage of all of them: how many stores may be out of service at once."""

import re
from typing import NamedTuple

__all__ = ["ONE_AT_A_TIME", "Allowance", "allowance_of_text"]

NUMBER_MAX = 1000

_TEXT = re.compile(r"([0-9]{1,4})(%?)")


class Allowance(NamedTuple):
    """A number, or a percentage."""

    number: int
    is_percentage: bool = False

    def of(self, total: int) -> int:
        """How many of `total`: a percentage is rounded down, as in Kubernetes, but to no less than one."""
        return max(1, total * self.number // 100) if self.is_percentage else self.number


ONE_AT_A_TIME = Allowance(1)


def allowance_of_text(text: str) -> Allowance:
    """What a text such as `3` or `10%` allows; `ValueError` for any other text."""
    found = _TEXT.fullmatch(text.strip())
    number = int(found[1]) if found else 0
    is_percentage = found is not None and bool(found[2])
    if not 1 <= number <= (100 if is_percentage else NUMBER_MAX):
        raise ValueError(f"should be a number from 1 to {NUMBER_MAX}, or a percentage from 1% to 100%")
    return Allowance(number, is_percentage)
