"""Merges a configuration from standard input into a switch and commits it: PORT PASSWORD [SECONDS].

With SECONDS, it is a confirmed commit with this timeout, and remains unconfirmed.
"""

import sys

from ncclient import manager

port, password, *seconds = sys.argv[1:]
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
    session.edit_config(sys.stdin.read(), target="candidate")
    if seconds:
        session.commit(confirmed=True, timeout=seconds[0], persist="nobody")
    else:
        session.commit()
