"""Sessions with the simulated switches, and their control API."""

import json
import os
import time
import urllib.request

import pytest
from ncclient import manager

with open(os.environ["FABRIC_JSON"], encoding="utf-8") as file:
    FABRIC = {switch["name"]: switch for switch in json.load(file)}


def connect(name, **options):
    switch = FABRIC[name]
    host, port = switch["netconf"].rsplit(":", 1)
    login = {"username": switch["username"], "password": switch["password"]}
    login.update(options)
    return manager.connect(
        host=host,
        port=int(port),
        hostkey_verify=False,
        allow_agent=False,
        look_for_keys=False,
        timeout=30,
        **login,
    )


class Control:
    """The control API of one switch."""

    def __init__(self, name):
        self.url = FABRIC[name]["controlUrl"]

    def request(self, method, path, body=None, content_type="application/json"):
        data = body if body is None or isinstance(body, str) else json.dumps(body)
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if data is None else data.encode(),
            headers={"Content-Type": content_type},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read()
        return json.loads(text) if text else None

    def running(self, since=None):
        return self.request("GET", "/running" + ("" if since is None else f"?since={since}"))

    def stats(self):
        return self.request("GET", "/stats")

    def fault(self, kind, **options):
        return self.request("POST", "/faults", {"kind": kind, **options})

    def reset(self):
        self.request("DELETE", "/faults")
        self.request("POST", "/reboot", {"load": "factory"})


@pytest.fixture
def control():
    """Control APIs by switch name. The used switches are reset to the factory configuration before and after."""
    used = {}

    def get(name):
        if name not in used:
            used[name] = Control(name)
            used[name].reset()
        return used[name]

    yield get
    for one in used.values():
        one.reset()


@pytest.fixture
def session(control):
    """Opens sessions with a freshly reset switch and closes them."""
    opened = []

    def open_session(name, **options):
        control(name)
        opened.append(connect(name, **options))
        return opened[-1]

    yield open_session
    for one in opened:
        if one.connected:
            try:
                one.close_session()
            except Exception:  # the test may have closed the session
                pass


def wait_until(condition, seconds=20):
    """Waits for a condition and returns its value."""
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)
