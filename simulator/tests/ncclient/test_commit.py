"""Locks, confirmed commits and faults of commits."""

import pytest
from conftest import Control, wait_until
from lxml import etree
from model import NC, NS, config, trunk, vlan, vlans
from ncclient.operations import RPCError
from ncclient.operations.errors import OperationError
from ncclient.transport.errors import SessionCloseError, TransportError

LOST = (SessionCloseError, TransportError, OperationError)


def refused(call, *arguments, **options):
    with pytest.raises(RPCError) as caught:
        call(*arguments, **options)
    return caught.value


def holder(error):
    return etree.fromstring(error.info.encode()).findtext(f"{{{NC}}}session-id")


def ids(session):
    reply = session.get_config(source="running")
    return [int(e.text) for e in reply.data_ele.findall(".//ni:vlan/ni:vlan-id", NS)]


def put(session, *vids):
    session.edit_config(target="candidate", config=config(vlans(*[vlan(v) for v in vids])))


def rpc(session, body):
    return session.dispatch(etree.fromstring(body.replace(">", f' xmlns="{NC}">', 1)))


def test_lock_is_exclusive_until_unlock(session):
    a, b = session("full"), session("full")
    for store in ("candidate", "running"):
        a.lock(store)
        e = refused(b.lock, store)
        assert e.tag == "lock-denied"
        assert holder(e) == a.session_id
        assert holder(refused(a.lock, store)) == a.session_id
        assert refused(b.unlock, store).tag == "operation-failed"
    assert refused(put, b, 5).tag == "in-use"
    assert refused(b.discard_changes).tag == "in-use"
    assert refused(b.commit).tag == "in-use"
    a.unlock("candidate")
    put(b, 5)
    assert refused(b.commit).tag == "in-use"
    a.close_session()
    wait_until(lambda: b.commit().ok)


def test_lock_of_modified_candidate_is_denied(session):
    a, b = session("full"), session("full")
    put(a, 5)
    e = refused(b.lock, "candidate")
    assert (e.tag, holder(e)) == ("lock-denied", "0")
    a.discard_changes()
    b.lock("candidate")


def test_locks_end_with_the_session(session):
    a, b = session("full"), session("full")
    a.lock("candidate")
    put(a, 5)
    a._session.transport.close()

    def locked():
        try:
            return b.lock("candidate")
        except RPCError:
            return None

    wait_until(locked)
    b.commit()
    assert ids(b) == []


def test_confirmed_commit_confirmed_by_another_session(session, control):
    a = session("full")
    put(a, 5)
    a.commit(confirmed=True, timeout="60", persist="token")
    a.close_session()
    b = session("full")
    assert ids(b) == [5]
    e = refused(b.commit, persist_id="wrong")
    assert e.tag == "invalid-value"
    assert refused(b.commit).tag == "in-use"
    assert refused(b.lock, "running").tag == "lock-denied"
    b.commit(persist_id="token")
    assert ids(b) == [5]
    assert control("full").stats()["confirmed"] >= 1
    assert control("full").request("GET", "")["pendingConfirmation"] is False
    assert refused(b.commit, persist_id="token").tag == "invalid-value"


def test_unconfirmed_commit_is_rolled_back_after_timeout(session, control):
    s, c = session("full"), control("full")
    put(s, 5)
    s.commit(confirmed=True, timeout="1", persist="token")
    version = c.running()["version"]
    assert ids(s) == [5]
    c.running(since=version)
    assert ids(s) == []
    assert refused(s.commit, persist_id="token").tag == "invalid-value"


def test_follow_up_commit_extends_confirm_timeout(session, control):
    s, c = session("full"), control("full")
    put(s, 5)
    s.commit(confirmed=True, timeout="1")
    put(s, 6)
    s.commit(confirmed=True, timeout="2")
    assert ids(s) == [5, 6]
    version = c.running()["version"]
    c.running(since=version)
    # The rollback restores the state before the first commit.
    assert ids(s) == []


def test_lost_session_rolls_back_confirmed_commit(session, control):
    a, b = session("full"), session("full")
    put(a, 5)
    a.commit(confirmed=True, timeout="60")
    assert holder(refused(b.lock, "running")) == a.session_id
    a._session.transport.close()
    wait_until(lambda: ids(b) == [])


def test_cancel_commit_rolls_back(session):
    a, b = session("full"), session("full")
    put(a, 5)
    a.commit(confirmed=True, timeout="60")
    assert refused(b.cancel_commit).tag == "operation-failed"
    a.cancel_commit()
    assert ids(a) == []
    put(a, 5)
    a.commit(confirmed=True, timeout="60", persist="token")
    assert refused(b.cancel_commit, persist_id="wrong").tag == "invalid-value"
    assert refused(a.cancel_commit).tag == "invalid-value"
    b.cancel_commit(persist_id="token")
    assert ids(a) == []
    assert refused(a.cancel_commit).tag == "operation-failed"


def test_confirmed_commit_1_0_has_no_persist_and_cancel(session, control):
    s, c = session("old"), control("old")
    put(s, 5)
    rpc(s, "<commit><confirmed/><confirm-timeout>60</confirm-timeout></commit>")
    s.commit()
    assert ids(s) == [5]
    assert c.stats()["confirmed"] >= 1
    assert refused(rpc, s, "<commit><confirmed/><persist>x</persist></commit>").tag == "unknown-element"
    assert refused(rpc, s, "<cancel-commit></cancel-commit>").tag == "operation-not-supported"


def test_confirmed_is_refused_without_capability(session):
    s = session("plain")
    put(s, 5)
    assert refused(rpc, s, "<commit><confirmed/></commit>").tag == "unknown-element"
    s.commit()
    assert ids(s) == [5]


def test_reboot_drops_candidate_and_unconfirmed_commit(session, control):
    c, s = control("faulty"), session("faulty")
    put(s, 5)
    s.commit()
    put(s, 6)
    s.commit(confirmed=True, timeout="60", persist="token")
    put(s, 7)
    c.request("POST", "/reboot", {})
    wait_until(lambda: not s.connected)
    s = session("faulty")
    assert ids(s) == [5]
    assert s.commit().ok
    assert ids(s) == [5]


def test_fault_lock_denied_denies_lock(session, control):
    s = session("faulty")
    control("faulty").fault("lock-denied", times=2)
    for _ in range(2):
        assert holder(refused(s.lock, "candidate")) == "0"
    s.lock("candidate")


@pytest.mark.parametrize("at", ["edit", "validate", "commit"])
def test_fault_reject_edit_names_the_vlan(session, control, at):
    s, c = session("faulty"), control("faulty")
    c.fault("reject-edit", vlan=666, at=at, message="no such luck", tag="resource-denied")
    steps = [
        ("edit", lambda: s.edit_config(target="candidate", config=config(
            vlans(vlan(665), vlan(666), vlan(667)), trunk("Ethernet1", "600..700")))),
        ("validate", lambda: s.validate(source="candidate")),
        ("commit", s.commit),
    ]
    for name, step in steps:
        if name == at:
            break
        step()
    e = refused(step)
    errors = getattr(e, "errors", [e])
    assert {(x.tag, x.message) for x in errors} == {("resource-denied", "no such luck")}
    paths = [x.path for x in errors]
    assert any("oc-netinst:vlan[oc-netinst:vlan-id='666']" in p for p in paths)
    assert any("oc-vlan:trunk-vlans[.='600..700']" in p for p in paths)
    s.discard_changes()
    put(s, 665, 667)
    s.validate(source="candidate")
    s.commit()
    assert ids(s) == [665, 667]


def test_fault_reject_edit_by_text_without_path(session, control):
    s, c = session("faulty"), control("faulty")
    c.fault("reject-edit", contains="v7", withoutPath=True, times=1)
    e = refused(put, s, 7)
    assert (e.tag, e.path) == ("operation-failed", None)
    put(s, 7)


@pytest.mark.parametrize("kind, left", [("drop-before-commit", []), ("drop-after-commit", [5])])
def test_fault_drop_around_commit(session, control, kind, left):
    s, c = session("faulty"), control("faulty")
    c.fault(kind, times=1)
    put(s, 5)
    with pytest.raises(LOST):
        s.commit()
    assert ids(session("faulty")) == left


def test_fault_lose_confirm_leaves_commit_unconfirmed(session, control):
    s, c = session("faulty"), control("faulty")
    c.fault("lose-confirm", times=1)
    put(s, 5)
    s.commit(confirmed=True, timeout="60", persist="token")
    with pytest.raises(LOST):
        s.commit(persist_id="token")
    s = session("faulty")
    assert ids(s) == [5]
    assert c.request("GET", "")["pendingConfirmation"] is True
    s.cancel_commit(persist_id="token")
    assert ids(s) == []


def test_fault_unreachable_drops_and_refuses_sessions(session, control):
    s, c = session("faulty"), control("faulty")
    c.fault("unreachable")
    wait_until(lambda: not s.connected)
    with pytest.raises(Exception):
        session("faulty")
    c.request("DELETE", "/faults")
    assert session("faulty").connected


def test_fault_slow_delays_operations(session, control):
    import time

    s, c = session("faulty"), control("faulty")
    c.fault("slow", ms=300, times=1)
    start = time.monotonic()
    s.get_config(source="running")
    assert time.monotonic() - start >= 0.3


def test_control_api_explains_invalid_requests():
    import json
    import urllib.error

    c = Control("faulty")
    for path, body, status in [("/faults", {"kind": "gremlins"}, 400), ("/edit", {"port": "Ethernet99", "mode": "trunk"}, 422)]:
        with pytest.raises(urllib.error.HTTPError) as e:
            c.request("POST", path, body)
        assert e.value.code == status
        assert json.loads(e.value.read())["error"]
