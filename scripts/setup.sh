#!/usr/bin/env bash
# Prepare this folder: a virtual environment in .venv with exactly the packages of requirements.lock.
#
# Usage: scripts/setup.sh [--no-java]
# `make` calls it before every target, so the second run must be quick: it compares one stamp and returns.
# It installs nothing outside this folder; what is missing on the machine is named in one line.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "setup: $*" >&2
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    local name
    for name in python3 python3.11 python3.12 python3.13 python3.14; do
        if command -v "$name" >/dev/null && is_new_enough "$name"; then
            command -v "$name"
            return
        fi
    done
    fail "Python 3.11 or newer is needed; install it (Debian: apt-get install python3 python3-venv, macOS: brew install python@3.12)"
}

check_java() {
    local java="${JAVA_HOME:+$JAVA_HOME/bin/}java" line major
    # The first line with a quoted version: options picked up from the environment are printed before it.
    line=$("$java" -version 2>&1 | grep -m 1 'version "') || line=""
    major=$(sed -E 's/.*version "(1\.)?([0-9]+).*/\2/' <<<"$line")
    if [ "${major:-0}" -lt 17 ]; then
        fail "Spark needs Java 17 or newer, and '$java' is ${major:+Java }${major:-not there}; install it (Debian: apt-get install openjdk-17-jre-headless, macOS: brew install openjdk@17, then set JAVA_HOME)"
    fi
}

# The folder is part of the stamp because the editable install holds absolute paths.
stamp_of() {
    { pwd && cat requirements.lock pyproject.toml && echo "$1"; } | cksum
}

[ "${1:-}" = --no-java ] || check_java

venv_python=.venv/bin/python
stamp_file=.venv/setup-stamp
mkdir -p .cache
# Two makes at once: the second waits, then finds the stamp. Without `flock` (macOS) they are not kept apart.
exec 9>.cache/setup.lock
if command -v flock >/dev/null; then flock 9; fi

if is_new_enough "$venv_python"; then
    if [ "$(cat "$stamp_file" 2>/dev/null)" = "$(stamp_of "$("$venv_python" --version)")" ]; then exit 0; fi
else
    python=$(find_python)
    echo "setup: creating .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -m venv .venv >/dev/null || fail "'$python -m venv' failed; install it (Debian: apt-get install python3-venv)"
fi

echo "setup: installing $(grep -c '^[a-z].*==' requirements.lock) pinned packages into .venv (the first time takes some minutes: Spark alone is 400 MB)"
"$venv_python" -m pip install --quiet --no-input --disable-pip-version-check --require-hashes -r requirements.lock
echo "setup: installing tussock itself, editable"
# No build isolation: hatchling comes from the lock, so nothing unpinned builds the project.
"$venv_python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --no-build-isolation -e .
stamp_of "$("$venv_python" --version)" >"$stamp_file"
echo "setup: done"
