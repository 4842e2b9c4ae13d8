"""<hello>, framing, authentication, sessions."""

import pytest
from conftest import FABRIC, connect, wait_until
from lxml import etree
from model import NC, NI, NS, config, vlan, vlans
from ncclient.operations import RPCError
from ncclient.transport.errors import AuthenticationError


def caps(session):
    return set(session.server_capabilities)


def test_hello_announces_capabilities(session):
    expected = {
        "full": {"base:1.0", "base:1.1", "candidate:1.0", "confirmed-commit:1.1", "validate:1.1", "rollback-on-error:1.0"},
        "old": {"base:1.0", "candidate:1.0", "confirmed-commit:1.0", "validate:1.0"},
        "new": {"base:1.1", "candidate:1.0", "confirmed-commit:1.1"},
        "direct": {"writable-running:1.0", "startup:1.0", "validate:1.1"},
        "plain": {"candidate:1.0"},
    }
    unexpected = {
        "full": {"writable-running:1.0", "startup:1.0", "confirmed-commit:1.0"},
        "old": {"base:1.1", "confirmed-commit:1.1", "validate:1.1"},
        "new": {"base:1.0"},
        "direct": {"candidate:1.0", "confirmed-commit:1.1"},
        "plain": {"confirmed-commit:1.1", "validate:1.0", "validate:1.1", "rollback-on-error:1.0", "notification:1.0"},
    }

    def uri(name):
        return "urn:ietf:params:netconf:" + ("" if name.startswith("base") else "capability:") + name

    for name, wanted in expected.items():
        announced = caps(session(name))
        assert {uri(c) for c in wanted} <= announced, name
        assert not {uri(c) for c in unexpected[name]} & announced, name
        assert any(c.startswith("http://openconfig.net/yang/vlan?module=openconfig-vlan&revision=") for c in announced)


@pytest.mark.parametrize("name", ["old", "new", "full"])
def test_both_framings_carry_large_messages(session, name):
    s = session(name)
    many = range(2, 1502)
    s.edit_config(target="candidate", config=config(vlans(*[vlan(v) for v in many])))
    s.commit()
    reply = s.get_config(source="running")
    ids = reply.data_ele.findall(".//ni:vlan/ni:vlan-id", NS)
    assert [int(e.text) for e in ids] == list(many)


def test_sessions_have_different_ids(session):
    ids = {session("full").session_id for _ in range(5)}
    assert len(ids) == 5


def test_public_key_login_succeeds(session, tmp_path):
    import os

    s = session("full", password=None, key_filename=os.environ["SSH_KEY"])
    assert s.get_config(source="running").ok


def test_wrong_logins_are_refused_and_counted(control):
    c = control("full")
    before = c.stats()["authFailures"]
    with pytest.raises(AuthenticationError):
        connect("full", password="wrong")
    with pytest.raises(AuthenticationError):
        connect("full", username="nobody")
    assert c.stats()["authFailures"] >= before + 2


def test_host_key_matches_fabric_info():
    import socket

    import paramiko

    for name, switch in FABRIC.items():
        host, port = switch["netconf"].rsplit(":", 1)
        transport = paramiko.Transport(socket.create_connection((host, int(port)), 10))
        transport.start_client(timeout=10)
        key = transport.get_remote_server_key()
        transport.close()
        assert [key.get_name(), key.get_base64()] == switch["hostKey"].split()[:2], name


def test_kill_session_frees_locks(session, control):
    first, second = session("full"), session("full")
    first.lock("candidate")
    with pytest.raises(RPCError):
        second.lock("candidate")
    second.kill_session(first.session_id)
    second.lock("candidate")
    wait_until(lambda: not first.connected)


@pytest.mark.parametrize("victim", ["own", "99999", "x"])
def test_kill_session_refuses_own_and_unknown_session(session, victim):
    s = session("full")
    with pytest.raises(RPCError) as e:
        s.kill_session(s.session_id if victim == "own" else victim)
    assert e.value.tag == "invalid-value"


def test_close_session_ends_it(session, control):
    s = session("full")
    assert control("full").stats()["openSessions"] == 1
    assert s.close_session().ok
    wait_until(lambda: control("full").stats()["openSessions"] == 0)


def test_unknown_operations_are_not_supported(session):
    s = session("full")
    with pytest.raises(RPCError) as e:
        s.dispatch(etree.fromstring(f'<make-coffee xmlns="{NC}"/>'))
    assert e.value.tag == "operation-not-supported"
    with pytest.raises(RPCError) as e:
        session("plain").dispatch(etree.fromstring(f'<validate xmlns="{NC}"><source><candidate/></source></validate>'))
    assert e.value.tag == "operation-not-supported"


def test_notifications_report_config_changes(session):
    listener, s = session("full"), session("full")
    listener.create_subscription()
    s.edit_config(target="candidate", config=config(vlans(vlan(100))))
    s.commit()
    notification = listener.take_notification(timeout=10)
    while b"netconf-config-change" not in notification.notification_xml.encode():
        notification = listener.take_notification(timeout=10)
    text = notification.notification_xml
    assert "vlan-id='100'" in text
    assert f"<session-id>{s.session_id}</session-id>" in text
    assert NI in text
