"""Prints what a switch answers to `<get>` with the subtree filter on standard input: PORT PASSWORD."""

import sys

from ncclient import manager

port, password = sys.argv[1:]
with manager.connect(
    host="127.0.0.1",
    port=int(port),
    username="admin",
    password=password,
    hostkey_verify=False,
    allow_agent=False,
    look_for_keys=False,
    timeout=30,
) as session:
    print(session.get(filter=("subtree", sys.stdin.read())).data_xml)
