"""The meta service: the version log and all that needs one place to be decided, for many processes on one store.

`node.py` is one replica without any network; `wire/` puts it on the wire, `serve.py` starts it.
"""
