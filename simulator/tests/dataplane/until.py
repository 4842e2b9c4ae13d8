"""Asks a switch again and again until its answer matches a regular expression: PORT PASSWORD EXPRESSION.

The question is on standard input: a subtree filter of `<get>`, or an operation whose name begins with `get-`. Prints the
last answer, and fails if none matches within a minute.
"""

import re
import sys
import time

from ncclient import manager, xml_

port, password, expression = sys.argv[1:]
question = sys.stdin.read()
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
    end = time.monotonic() + 60
    while True:
        if question.startswith("<get-"):
            answer = str(session.dispatch(xml_.to_ele(question)))
        else:
            answer = session.get(filter=("subtree", question)).data_xml
        if re.search(expression, answer, re.DOTALL):
            print(answer)
            break
        if time.monotonic() > end:
            sys.exit(f"{expression} does not match {answer}")
