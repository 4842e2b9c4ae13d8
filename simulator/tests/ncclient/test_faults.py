"""Injected faults, backup, restore and replacement of switches, and YANG-push."""

import socket

import pytest
from conftest import connect, wait_until
from lxml import etree
from model import NC, config, no_vlan, port, trunk, vlan, vlans
from ncclient.operations import RPCError
from ncclient.operations.errors import TimeoutExpiredError
from ncclient.transport.errors import SessionCloseError, TransportError


def edit(session, *parts):
    return session.edit_config(target="candidate", config=config(*parts))


def refused(call, *args, **kwargs):
    with pytest.raises(RPCError) as caught:
        call(*args, **kwargs)
    return caught.value


OPERATIONS = {
    "lock": lambda s: s.lock("candidate"),
    "discard-changes": lambda s: s.discard_changes(),
    "edit-config": lambda s: edit(s, vlans(vlan(100))),
    "validate": lambda s: s.validate(source="candidate"),
    "commit": lambda s: s.commit(),
    "get-config": lambda s: s.get_config(source="running"),
    "unlock": lambda s: s.unlock("candidate"),
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_fault_drop_closes_connection_and_releases_locks(session, control, operation, when):
    s, c = session("faulty"), control("faulty")
    c.fault("drop", operation=operation, when=when, times=1)
    with pytest.raises((SessionCloseError, TransportError)):
        for one in OPERATIONS.values():
            one(s)
    done = list(OPERATIONS).index(operation) + (when == "after") > list(OPERATIONS).index("commit")
    wait_until(lambda: c.stats()["openSessions"] == 0)
    assert ("100" in c.running()["vlans"]) == done
    # All locks are released.
    s = session("faulty")
    s.lock("candidate")


def test_faults_hang_and_half_open_send_no_reply(session, control):
    s, c = session("faulty"), control("faulty")
    s.timeout = 1
    c.fault("hang", operation="commit", when="after", times=1)
    edit(s, vlans(vlan(100)))
    with pytest.raises(TimeoutExpiredError):
        s.commit()
    assert "100" in c.running()["vlans"]
    c.fault("half-open")
    host, port_number = __import__("conftest").FABRIC["faulty"]["netconf"].rsplit(":", 1)
    with socket.create_connection((host, int(port_number)), timeout=1) as connection:
        with pytest.raises(TimeoutError):
            connection.recv(1)


def test_fault_locked_denies_lock_and_edits(session, control):
    s, c = session("faulty"), control("faulty")
    c.fault("locked", datastore="candidate", session=4711)
    e = refused(s.lock, "candidate")
    assert e.tag == "lock-denied" and "4711" in e.info
    assert refused(edit, s, vlans(vlan(100))).tag == "in-use"
    s.lock("running")


def test_fault_access_denied_denies_edits_and_hides_data(session, control):
    s, c = session("faulty"), control("faulty")
    c.fault("access-denied", subtree="interfaces/interface", hidden=True)
    edit(s, vlans(vlan(100)))
    e = refused(edit, s, trunk("Ethernet1", 100))
    assert e.tag == "access-denied" and "Ethernet1" in e.path
    assert "<interface>" not in s.get_config(source="running").xml
    c.fault("access-denied", operation="commit")
    assert refused(s.commit).tag == "access-denied"


def test_fault_reject_edit_returns_further_errors(session, control):
    s, c = session("faulty"), control("faulty")
    c.fault("reject-edit", vlan=100, also=["resource-denied", "too-big"])
    e = refused(edit, s, vlans(vlan(100)))
    assert [x.tag for x in e.errors] == ["operation-failed", "resource-denied", "too-big"]


def test_faults_announce_ignore_edit_and_ignore_confirmed_take_effect(session, control):
    c = control("faulty")
    c.fault("announce", capabilities={"startup": True, "writableRunning": True})
    s = session("faulty")
    c.fault("announce", capabilities={"startup": True, "writableRunning": True})
    s = connect("faulty")
    assert "urn:ietf:params:netconf:capability:startup:1.0" in set(s.server_capabilities)
    assert refused(s.lock, "startup").tag == "invalid-value"
    c.fault("ignore-edit", contains="100")
    edit(s, vlans(vlan(100)))
    edit(s, vlans(vlan(200)))
    c.fault("ignore-confirmed")
    s.commit(confirmed=True, timeout="60")
    s.close_session()
    wait_until(lambda: c.stats()["openSessions"] <= 1)
    assert list(c.running()["vlans"]) == ["200"]


def test_fault_notifications_first_sends_notifications_before_reply(session, control):
    s, c = session("faulty"), control("faulty")
    s.create_subscription()
    c.fault("notifications-first")
    edit(s, vlans(vlan(100)))
    s.commit()
    assert "netconf-config-change" in s.take_notification(timeout=5).notification_xml


def test_backup_restore_and_replace_change_configuration_and_host_key(session, control):
    s, c = session("faulty"), control("faulty")
    edit(s, vlans(vlan(100)))
    s.commit()
    c.request("POST", "/backup", {"name": "monday"})
    edit(s, vlans(vlan(200)))
    s.commit()
    c.request("POST", "/restore", {"name": "monday"})
    assert list(c.running()["vlans"]) == ["100"] and s.connected
    edit(s, vlans(vlan(200)))
    s.commit()
    c.request("POST", "/restore", {"name": "monday", "reboot": True})
    assert list(c.running()["vlans"]) == ["100"]
    wait_until(lambda: not s.connected)

    def key():
        import paramiko

        host, number = __import__("conftest").FABRIC["faulty"]["netconf"].rsplit(":", 1)
        transport = paramiko.Transport((host, int(number)))
        transport.start_client(timeout=10)
        found = transport.get_remote_server_key().get_base64()
        transport.close()
        return found

    before = key()
    answer = c.request("POST", "/replace", {"newHostKey": False})
    assert answer["hostKey"] is None and key() == before
    assert c.running()["vlans"] == {}


PUSH = (
    '<establish-subscription xmlns="urn:ietf:params:xml:ns:yang:ietf-subscribed-notifications" '
    'xmlns:yp="urn:ietf:params:xml:ns:yang:ietf-yang-push"><yp:datastore '
    'xmlns:ds="urn:ietf:params:xml:ns:yang:ietf-datastores">ds:running</yp:datastore>'
    '<yp:datastore-subtree-filter>{filter}</yp:datastore-subtree-filter>{trigger}</establish-subscription>'
)


def test_yang_push_reports_changes(session, control):
    s = session("push")
    assert any("module=ietf-yang-push" in c for c in s.server_capabilities)
    ni = '<network-instances xmlns="http://openconfig.net/yang/network-instance"/>'
    on_change = "<yp:on-change><yp:sync-on-start>{}</yp:sync-on-start></yp:on-change>"
    reply = s.dispatch(etree.fromstring(PUSH.format(filter=ni, trigger=on_change.format("false"))))
    assert ">1<" in reply.xml or "<id" in reply.xml
    edit(s, port("Ethernet1", "<interface-mode>TRUNK</interface-mode><trunk-vlans>5</trunk-vlans>"))
    s.commit()
    edit(s, vlans(vlan(100)))
    s.commit()
    first = s.take_notification(timeout=5).notification_xml
    assert "push-change-update" in first and "/openconfig-network-instance:network-instances" in first
    assert "vlan=100" in first and "<operation>create</operation>" in first and "Ethernet1" not in first
    edit(s, vlans(no_vlan(100)))
    s.commit()
    assert "<operation>delete</operation>" in s.take_notification(timeout=5).notification_xml
    s.dispatch(etree.fromstring(PUSH.format(filter=ni, trigger=on_change.format("true"))))
    assert "push-update" in s.take_notification(timeout=5).notification_xml
    periodic = "<yp:periodic><yp:period>100</yp:period></yp:periodic>"
    assert refused(s.dispatch, etree.fromstring(PUSH.format(filter=ni, trigger=periodic))).tag == "operation-not-supported"
    assert NC
