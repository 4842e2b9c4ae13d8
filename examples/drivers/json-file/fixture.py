#!/usr/bin/env python3
"""The fixture of the conformance suite: it starts the driver, and shows and changes the device without it.

    eno conformance --driver json-file --fixture ./fixture.py

Item n is VLAN 100+n on the port p1 or p2. The device is unreachable while its file has another name.
"""
import json, os, pathlib, signal, subprocess, sys, tempfile

DRIVER = pathlib.Path(__file__).with_name("driver.py")
ITEMS = 4
FOREIGN = {"vlans": {"7": "users", "42": "eno-other-42"}, "ports": {"p1": [7, 42], "p2": [], "p3": [7]}}


def vlan(item):
    return 100 + item


def port(item):
    return "p1" if item % 2 == 0 else "p2"


class Fixture:
    def __init__(self, directory):
        self.file, self.away = directory / "leaf1.json", directory / "leaf1.away"
        self.process = None
        self.write(FOREIGN)

    def read(self):
        return json.loads((self.file if self.file.exists() else self.away).read_text())

    def write(self, content):
        self.file.with_suffix(".new").write_text(json.dumps(content))
        self.file.with_suffix(".new").rename(self.file)

    def describe(self):
        return {"target": "leaf1", "items": ITEMS}

    def start(self, natsUrl, instance):
        environment = {"ENO_LOG": "error", **os.environ, "ENO_NATS_URL": natsUrl, "ENO_INSTANCE": instance}
        # Standard output belongs to the protocol.
        self.process = subprocess.Popen([sys.executable, DRIVER], env=environment, stdin=subprocess.DEVNULL,
                                        stdout=sys.stderr)

    def end(self, number):
        if self.process:
            self.process.send_signal(number)
            self.process.wait(20)
            self.process = None

    def stop(self):
        self.end(signal.SIGTERM)

    def kill(self):
        self.end(signal.SIGKILL)

    def desired(self, items):
        on = lambda name: ",".join(str(vlan(item)) for item in items if port(item) == name)
        return {"desired": {
            "kind": "fabric",
            "cluster": "c1",
            "device": {"address": f"file://{self.file}"},
            "vlans": [f"{vlan(item)} L2Service/s" for item in items],
            "ports": [{"name": name, "vlans": on(name)} for name in ("p1", "p2")],
        }}

    def items(self):
        content = self.read()
        has = lambda item: (content["vlans"].get(str(vlan(item))) == f"eno-c1-{vlan(item)}"
                            and vlan(item) in content["ports"][port(item)])
        return {"items": [item for item in range(ITEMS) if has(item)]}

    def foreign(self):
        content, ours = self.read(), {vlan(item) for item in range(ITEMS)}
        return {"foreign": {
            "vlans": {number: name for number, name in content["vlans"].items() if int(number) not in ours},
            "ports": {name: sorted(set(vlans) - ours) for name, vlans in content["ports"].items()},
        }}

    def writes(self):
        return {"writes": self.file.stat().st_mtime_ns}

    def reachable(self, reachable):
        if reachable:
            self.away.rename(self.file)
        else:
            self.file.rename(self.away)

    def refuse(self, item):
        content = self.read()
        content["reserved"] = [] if item is None else [vlan(item)]
        self.write(content)

    def edit(self, item, present):
        content = self.read()
        content["vlans"].pop(str(vlan(item)), None)
        content["ports"][port(item)] = [number for number in content["ports"][port(item)] if number != vlan(item)]
        if present:
            content["vlans"][str(vlan(item))] = f"eno-c1-{vlan(item)}"
            content["ports"][port(item)].append(vlan(item))
        self.write(content)

    def names(self, item, found):
        return {"names": found.get("vlan") == vlan(item)}


def main():
    with tempfile.TemporaryDirectory(prefix="eno-fixture-") as directory:
        fixture = Fixture(pathlib.Path(directory))
        try:
            for line in sys.stdin:
                arguments = json.loads(line)
                try:
                    answer = getattr(fixture, arguments.pop("request"))(**arguments) or {}
                except Exception as error:
                    answer = {"error": repr(error)}
                print(json.dumps(answer), flush=True)
        finally:
            fixture.kill()


if __name__ == "__main__":
    main()
