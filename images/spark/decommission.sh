#!/bin/sh
# What the kubelet runs before it ends an executor (spark.kubernetes.decommission.script): the executor hands its blocks
# to others and ends. It must have gone when this returns, or SIGTERM would cut its work short.
kill -s PWR 1
exec tail --pid=1 --follow /dev/null
