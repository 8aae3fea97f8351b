"""Deathstar's movie service: a review is put together by one request, out of five parts that four services give.

`frontend.compose` calls `unique_id`, `user`, `movie_id` and `text`, and these call `compose_review.upload_*`, all on
the entity of this review: ten functions, five of them on one key. The movie gives two parts, its number and the rating.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from functions.workload import Reply, Request, Tables

from tussock.compute import functions as fn

__all__ = ["Movie"]

USERS = 1000
TITLES = ("The Long Meadow", "Seven Bridges", "A Winter Ferry", "Copper and Salt", "The Clockmaker", "North of Nowhere")
SEQUELS = 20
"""Of each title; all have numbers."""
TEXT = 256
RATING_MAX = 10
UNKNOWN = 0.02
"""Requests of users that do not exist."""
REVIEW = ("review_id", "user_id", "movie_id", "rating", "text")


def _make_review() -> fn.Operator:
    kinds = {"review_id": pa.string(), "text": pa.string()}
    schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in REVIEW])
    review = fn.Operator("compose_review", 4, schema=schema)

    def upload(ctx: fn.FunctionContext, part: str, value: Any) -> None:
        state = ctx.get() or dict.fromkeys(REVIEW)
        if state[part] is not None:
            raise ValueError(f"review {ctx.key} has its {part} already")
        ctx.put({**state, part: value})

    @review.register
    async def upload_unique_id(ctx: fn.FunctionContext, value: str) -> None:
        upload(ctx, "review_id", value)

    @review.register
    async def upload_user(ctx: fn.FunctionContext, value: int) -> None:
        upload(ctx, "user_id", value)

    @review.register
    async def upload_movie(ctx: fn.FunctionContext, value: int) -> None:
        upload(ctx, "movie_id", value)

    @review.register
    async def upload_rating(ctx: fn.FunctionContext, value: int) -> None:
        upload(ctx, "rating", value)

    @review.register
    async def upload_text(ctx: fn.FunctionContext, value: str) -> None:
        upload(ctx, "text", value)

    return review


def _make_services() -> list[fn.Operator]:
    number = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    frontend, unique_id, text = (fn.Operator(name, 4) for name in ("frontend", "unique_id", "text"))
    user, movie_id = (fn.Operator(name, 4, schema=number) for name in ("user", "movie_id"))

    @frontend.register
    async def compose(ctx: fn.FunctionContext, user: str, title: str, rating: int, text: str) -> str:
        review = str(ctx.key)
        ctx.call_async("unique_id", review, "give_unique_id")
        ctx.call_async("user", user, "give_user", review)
        ctx.call_async("movie_id", title, "give_movie", review, rating)
        ctx.call_async("text", review, "give_text", text)
        return review

    @unique_id.register
    async def give_unique_id(ctx: fn.FunctionContext) -> None:
        ctx.call_async("compose_review", ctx.key, "upload_unique_id", str(ctx.uuid()))

    @user.register
    async def give_user(ctx: fn.FunctionContext, review: str) -> None:
        state = ctx.get()
        if state is None:
            raise LookupError(f"no user {ctx.key}")
        ctx.call_async("compose_review", review, "upload_user", state["id"])

    @movie_id.register
    async def give_movie(ctx: fn.FunctionContext, review: str, rating: int) -> None:
        state = ctx.get()
        if state is None:
            raise LookupError(f"no movie {ctx.key}")
        ctx.call_async("compose_review", review, "upload_movie", state["id"])
        ctx.call_async("compose_review", review, "upload_rating", rating)

    @text.register
    async def give_text(ctx: fn.FunctionContext, value: str) -> None:
        ctx.call_async("compose_review", ctx.key, "upload_text", value)

    return [frontend, unique_id, text, user, movie_id]


def _titles() -> list[str]:
    return [f"{title} {at}" for title in TITLES for at in range(1, SEQUELS + 1)]


class Movie:
    """Reviews by a thousand users of 120 movies."""

    def __init__(self) -> None:
        self.operators = [_make_review(), *_make_services()]

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Users and movies with their numbers."""
        return {
            "user": [{"key": f"user{at}", "id": at} for at in range(USERS)],
            "movie_id": [{"key": title, "id": at} for at, title in enumerate(_titles())],
        }

    def requests(self, count: int, seed: int) -> list[Request]:
        """A review each; two in a hundred are by nobody."""
        random = np.random.default_rng(seed)
        titles = _titles()
        movies = random.integers(0, len(titles), count).tolist()
        ratings = random.integers(0, RATING_MAX + 1, count).tolist()
        users = np.where(random.random(count) < UNKNOWN, USERS, random.integers(0, USERS, count)).tolist()
        letters = random.integers(ord("a"), ord("z") + 1, (count, TEXT), dtype=np.uint8)
        return [
            Request(
                "frontend",
                f"review{at}",
                "compose",
                (f"user{users[at]}", titles[movies[at]], ratings[at], letters[at].tobytes().decode()),
            )
            for at in range(count)
        ]

    def check(self, requests: Sequence[Request], replies: Sequence[Reply], tables: Tables) -> list[str]:
        """There is one whole review for each reply, and none of a request that was aborted."""
        wrong = []
        left = dict(tables["compose_review"])
        numbers = {title: at for at, title in enumerate(_titles())}
        ids = set()
        for request, reply in zip(requests, replies, strict=True):
            user, title, rating, text = request.arguments
            review = left.pop(request.key, None)
            if user == f"user{USERS}":
                if reply != Reply(None, f"no user {user}") or review is not None:
                    wrong.append(f"{request.key} is by nobody, and there is {reply}, {review}")
                continue
            expected = {"user_id": int(user[4:]), "movie_id": numbers[title], "rating": rating, "text": text}
            if reply != Reply(request.key, None) or review is None:
                wrong.append(f"{request.key}: {reply}, {review}")
                continue
            ids.add(review["review_id"])
            if review != {**expected, "review_id": review["review_id"]} or review["review_id"] is None:
                wrong.append(f"{request.key} is {review}, expected {expected}")
        if left:
            wrong.append(f"{len(left)} reviews that nobody asked for")
        if len(ids) != len(tables["compose_review"]):
            wrong.append(f"{len(tables['compose_review'])} reviews have {len(ids)} ids")
        return wrong
