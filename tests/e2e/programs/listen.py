"""Runs in a pod until it is ended: accepts connections on the ports of `PORTS`, and sends nothing."""

import os
import selectors
import socket

waiting = selectors.DefaultSelector()
for port in os.environ["PORTS"].split():
    server = socket.create_server(("0.0.0.0", int(port)))
    waiting.register(server, selectors.EVENT_READ)
while True:
    for key, _ in waiting.select():
        connection, _ = key.fileobj.accept()
        connection.close()
