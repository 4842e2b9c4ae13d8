"""The device: a JSON file. For your own device, this is the part to write.

    {"vlans": {"7": "users", "100": "eno-c1-100"}, "ports": {"p1": [7, 100]}, "reserved": [1]}

The name eno-<cluster>-<VLAN> marks a VLAN as ours. All else is foreign and stays. The device refuses reserved VLANs.
"""
import contextlib, fcntl, json, os, pathlib, time
from datetime import datetime, timezone


def path_of(desired):
    path = desired["device"]["address"].removeprefix("file://")
    if not path.startswith("/"):
        raise ValueError(f"this driver takes an Address /path/file.json or file:///path/file.json, not {path!r}")
    return pathlib.Path(path)


def stamp(desired):
    """Changes whenever anybody writes the device; None: it can't be reached."""
    with contextlib.suppress(OSError, ValueError):
        return path_of(desired).stat().st_mtime_ns


def vlan_set(text):
    """The VLANs of a text such as 10-20,30."""
    ranges = [part.split("-") for part in text.split(",") if part]
    return {vlan for bounds in ranges for vlan in range(int(bounds[0]), int(bounds[-1]) + 1)}


def ours(content, desired):
    """What of the content is ours: (None, VLAN) for each VLAN, (port, VLAN) for each listed port that carries it."""
    vlans = {int(vlan) for vlan, name in content["vlans"].items() if name == f"eno-{desired['cluster']}-{vlan}"}
    ports = {port.get("lag") or port["name"] for port in desired["ports"]}
    return {(None, vlan) for vlan in vlans} | {
        (port, vlan) for port in ports for vlan in content["ports"].get(port, []) if vlan in vlans}


def plan(content, desired):
    """The content that the device is to have, and the items that it refuses. It reads and writes nothing."""
    refused, accepted, adopt = [], {}, vlan_set(desired["device"].get("adopt", ""))
    for vlan in (text.split(" ")[0] for text in desired["vlans"]):
        name, reserved = f"eno-{desired['cluster']}-{vlan}", int(vlan) in content.get("reserved", [])
        found = content["vlans"].get(vlan, name)
        if reserved or (found != name and int(vlan) not in adopt):
            reason = f"the device reserves VLAN {vlan}" if reserved else f"VLAN {vlan} is {found!r}, not ours"
            refused.append({"vlan": int(vlan), "reason": reason, "retryable": False})
        else:
            accepted[vlan] = name
    before, carried = {vlan for _, vlan in ours(content, desired)}, {}
    foreign = {vlan: name for vlan, name in content["vlans"].items() if int(vlan) not in before}
    for port in desired["ports"]:
        wanted = {vlan for vlan in vlan_set(port["vlans"]) if str(vlan) in accepted}
        real = port.get("lag") or port["name"]  # In place of the member of a LAG, the LAG is configured.
        if real in content["ports"]:
            carried.setdefault(real, set(content["ports"][real]) - before).update(wanted)
        elif wanted:
            refused.append({"port": port["name"], "reason": f"the device has no {real}", "retryable": False})
    ports = {port: sorted(vlans) for port, vlans in carried.items()}
    return {**content, "vlans": foreign | accepted, "ports": content["ports"] | ports}, refused


def reconcile(desired, was_applied, is_current):
    """Brings the device to the desired state. Returns the fields of the report; None: a newer command has come."""
    started, path, change = time.monotonic(), path_of(desired), None
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = json.loads(path.read_text())
        wanted, refused = plan(content, desired)
        before, after = ours(content, desired), ours(wanted, desired)
        # The device had the desired state before, so somebody else has changed it.
        drift = sorted(before ^ after, key=str) if was_applied else []
        if content != wanted and not (drift and desired["device"].get("drift") == "report"):
            if not is_current():  # The last moment to find out, under the lock of the device.
                return None
            pathlib.Path(f"{path}.new").write_text(json.dumps(wanted, indent=1))
            os.replace(f"{path}.new", path)  # All or nothing, whenever this process is killed.
            change = {"at": datetime.now(timezone.utc).isoformat(), "added": len(after - before),
                      "removed": len(before - after), "tookMs": int((time.monotonic() - started) * 1000)}
        there = ours(json.loads(path.read_text()), desired)  # What is reported is what was read back.

    def on(port):
        return ",".join(str(vlan) for vlan in sorted(vlan for name, vlan in there if name == port))

    ports = {port["name"]: on(port.get("lag") or port["name"]) for port in desired["ports"]}
    return {
        "outcome": {"status": "applied"},
        "applied": {"kind": "fabric", "vlans": on(None), "ports": ports},
        "rejected": refused,
        "notes": [{"kind": "Drift", "item": {"port": port, "vlan": vlan}, "message": "somebody else has "
                   + ("added it" if (port, vlan) in before else "removed it")} for port, vlan in drift[:32]],
        "device": {"model": "JSON file", "rollback": "none", "changeNotifications": True},
    } | ({"change": change} if change else {})
