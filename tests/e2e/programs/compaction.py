"""Runs in a pod: the command `tussock pause` or `tussock resume`, which `WORD` names, for the store's compaction."""

import json
import os
import subprocess

word = os.environ["WORD"]
reason = ["--reason", "a test"] if word == "pause" else []
meta = os.environ["TUSSOCK_STORE"].removeprefix("tussock://")
subprocess.run(["tussock", word, "--meta", meta, *reason], check=True)
print(json.dumps({"done": word}))
