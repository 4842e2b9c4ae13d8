"""edit-config, validate, rules of the model, subtree filters."""

import pytest
from lxml import etree
from model import ETH, IF, NC, NI, NS, VLAN, config, no_vlan, port, trunk, vlan, vlans
from ncclient.operations import RPCError


def edit(session, *parts, **options):
    return session.edit_config(target="candidate", config=config(*parts), **options)


def refused(call, *arguments, **options):
    with pytest.raises(RPCError) as caught:
        call(*arguments, **options)
    return caught.value


def ids(session, source="running"):
    reply = session.get_config(source=source)
    return [int(e.text) for e in reply.data_ele.findall(".//ni:vlan/ni:vlan-id", NS)]


def names(session, source="candidate"):
    reply = session.get_config(source=source)
    return [e.text for e in reply.data_ele.findall(".//ni:vlan/ni:config/ni:name", NS)]


def test_candidate_edit_takes_effect_at_commit(session, control):
    s, c = session("full"), control("full")
    with s.locked("candidate"), s.locked("running"):
        s.discard_changes()
        edit(s, vlans(vlan(100), vlan(200)), trunk("Ethernet1", "100", "200..210"))
        assert ids(s) == []
        assert ids(s, "candidate") == [100, 200]
        s.validate(source="candidate")
        s.commit()
    assert ids(s) == [100, 200]
    running = c.running()
    assert running["vlans"] == {
        "100": {"name": "v100", "status": "ACTIVE"},
        "200": {"name": "v200", "status": "ACTIVE"},
    }
    ethernet1 = running["ports"]["Ethernet1"]
    assert ethernet1["mode"] == "trunk"
    assert ethernet1["configured"] == "100,200-210"
    # A port does not carry an undefined VLAN.
    assert ethernet1["vlans"] == "100,200"
    assert ethernet1["openTrunk"] is False
    assert running["ports"]["Ethernet2"]["mode"] is None


def test_discard_and_unlock_drop_changes(session):
    s = session("full")
    edit(s, vlans(vlan(100)))
    s.discard_changes()
    assert ids(s, "candidate") == []
    s.lock("candidate")
    edit(s, vlans(vlan(100)))
    s.unlock("candidate")
    assert ids(s, "candidate") == []


def test_edit_operations_change_the_candidate(session):
    s = session("full")
    edit(s, vlans(vlan(100, operation="create")))
    e = refused(edit, s, vlans(vlan(100, operation="create")))
    assert (e.tag, e.type, e.severity) == ("data-exists", "application", "error")
    assert "[oc-netinst:vlan-id='100']" in e.path
    edit(s, vlans(vlan(100, name="other")))
    assert names(s) == ["other"]
    edit(s, vlans('<vlan nc:operation="replace"><vlan-id>100</vlan-id><config><vlan-id>100</vlan-id></config></vlan>'))
    assert names(s) == []
    edit(s, vlans(no_vlan(100, "delete")))
    e = refused(edit, s, vlans(no_vlan(100, "delete")))
    assert e.tag == "data-missing"
    edit(s, vlans(no_vlan(100, "remove")))
    edit(s, trunk("Ethernet1", 10, 20))
    edit(s, port("Ethernet1", '<trunk-vlans nc:operation="remove">10</trunk-vlans>'))
    e = refused(edit, s, port("Ethernet1", '<trunk-vlans nc:operation="delete">10</trunk-vlans>'))
    assert e.tag == "data-missing"
    left = s.get_config(source="candidate").data_ele.findall(".//vlan:trunk-vlans", NS)
    assert [e.text for e in left] == ["20"]


def test_default_operation_applies_to_nodes_without_one(session):
    s = session("full")
    e = refused(edit, s, vlans(vlan(100)), default_operation="none")
    assert e.tag == "data-missing"
    edit(s, vlans(vlan(100, operation="merge")), default_operation="none")
    assert ids(s, "candidate") == [100]
    # replace: the edit is the whole configuration.
    edit(s, trunk("Ethernet1", 5), default_operation="replace")
    assert ids(s, "candidate") == []
    assert len(s.get_config(source="candidate").data_ele.findall(".//if:interface", NS)) == 1


def test_test_option_decides_validation_and_effect(session):
    s = session("full")
    edit(s, vlans(vlan(100)), test_option="test-only")
    assert ids(s, "candidate") == []
    access_with_trunk = port("Ethernet1", "<interface-mode>ACCESS</interface-mode><trunk-vlans>5</trunk-vlans>")
    e = refused(edit, s, vlans(vlan(7)), access_with_trunk, test_option="test-then-set")
    assert e.tag == "unknown-element"
    assert ids(s, "candidate") == []
    edit(s, vlans(vlan(7)), access_with_trunk, test_option="set")
    assert ids(s, "candidate") == [7]


def test_error_option_decides_remaining_edits(session):
    s = session("full")
    bad = vlans(vlan(100), no_vlan(101), vlan(102))
    assert refused(edit, s, bad, error_option="rollback-on-error").tag == "data-missing"
    assert ids(s, "candidate") == []
    assert refused(edit, s, bad, error_option="stop-on-error").tag == "data-missing"
    assert ids(s, "candidate") == [100]
    s.discard_changes()
    assert refused(edit, s, bad, error_option="continue-on-error").tag == "data-missing"
    assert ids(s, "candidate") == [100, 102]


@pytest.mark.parametrize(
    "part, tag, path, bad",
    [
        (vlans(vlan(4095)), "invalid-value", "vlan-id", "vlan-id"),
        (vlans(vlan(0)), "invalid-value", "vlan-id", "vlan-id"),
        (vlans(vlan(10, name="x" * 33)), "invalid-value", "oc-netinst:name", "name"),
        (port("Ethernet1", "<interface-mode>HYBRID</interface-mode>"), "invalid-value", "interface-mode", "interface-mode"),
        (trunk("Ethernet1", "20..10"), "invalid-value", "trunk-vlans", "trunk-vlans"),
        (trunk("Ethernet1", "1..4095"), "invalid-value", "trunk-vlans", "trunk-vlans"),
        (port("Ethernet1", "<colour>red</colour>"), "unknown-element", "switched-vlan/oc-vlan:config", "colour"),
        (vlans("<vlan><config><name>x</name></config></vlan>"), "missing-element", "oc-netinst:vlan", "vlan-id"),
        ('<x xmlns="urn:nobody"/>', "unknown-namespace", None, "x"),
        (f'<y xmlns="{IF}"/>', "unknown-element", None, "y"),
        (vlans('<vlan nc:operation="destroy"><vlan-id>1</vlan-id></vlan>'), "bad-attribute", "oc-netinst:vlan", "vlan"),
        (vlans('<vlan operation="remove"><vlan-id>1</vlan-id></vlan>'), "unknown-attribute", "oc-netinst:vlan", "vlan"),
    ],
)
def test_edits_outside_the_model_are_refused(session, part, tag, path, bad):
    s = session("full")
    e = refused(edit, s, part)
    assert e.tag == tag
    assert e.severity == "error"
    assert e.message
    if path is None:
        assert e.path is None
    else:
        assert e.path.strip().startswith("/oc-") and path in e.path
    assert f"<bad-element>{bad}</bad-element>" in e.info.replace(f' xmlns="{NC}"', "")
    assert ids(s, "candidate") == []


def test_reply_contains_all_errors_of_an_edit(session):
    e = refused(edit, session("full"), vlans(vlan(4095), vlan(5000)))
    tags = [error.tag for error in e.errors] if hasattr(e, "errors") else [e.tag]
    assert len(tags) >= 2 and set(tags) == {"invalid-value"}


@pytest.mark.parametrize(
    "part, tag, text",
    [
        (port("Ethernet1", "<interface-mode>ACCESS</interface-mode><trunk-vlans>5</trunk-vlans>"), "unknown-element", "trunk-vlans"),
        (port("Ethernet1", "<trunk-vlans>5</trunk-vlans>"), "unknown-element", "trunk-vlans"),
        (port("Ethernet1", "<interface-mode>TRUNK</interface-mode><access-vlan>5</access-vlan>"), "unknown-element", "access-vlan"),
        (trunk("Ethernet99", "5"), "invalid-value", "Ethernet99"),
        (vlans("<vlan><vlan-id>5</vlan-id></vlan>"), "data-missing", "vlan-id='5'"),
        (vlans("<vlan><vlan-id>5</vlan-id><config><vlan-id>6</vlan-id></config></vlan>"), "data-missing", "vlan-id='5'"),
        (vlans(vlan(5)).replace("default", "blue"), "data-missing", "blue"),
    ],
)
def test_validation_refuses_inconsistent_configuration(session, part, tag, text):
    s = session("full")
    edit(s, part)
    for call in (lambda: s.validate(source="candidate"), s.commit):
        e = refused(call)
        errors = getattr(e, "errors", [e])
        assert any(x.tag == tag and text in (x.path or "") for x in errors), e
    assert ids(s) == []


def test_lag_member_requires_existing_lag(session, control):
    s = session("full")
    lag = (
        f'<interfaces xmlns="{IF}"><interface><name>Port-Channel1</name><config><name>Port-Channel1</name>'
        '<type xmlns:x="urn:ietf:params:xml:ns:yang:iana-if-type">x:ieee8023adLag</type></config>'
        '<aggregation xmlns="http://openconfig.net/yang/interfaces/aggregate">'
        f'<switched-vlan xmlns="{VLAN}"><config><interface-mode>TRUNK</interface-mode><trunk-vlans>100</trunk-vlans>'
        "</config></switched-vlan></aggregation></interface></interfaces>"
    )
    member = (
        f'<interfaces xmlns="{IF}"><interface><name>Ethernet1</name><ethernet xmlns="{ETH}"><config>'
        '<aggregate-id xmlns="http://openconfig.net/yang/interfaces/aggregate">Port-Channel1</aggregate-id>'
        "</config></ethernet></interface></interfaces>"
    )
    edit(s, member)
    assert refused(s.commit).tag == "data-missing"
    edit(s, lag, vlans(vlan(100)))
    s.commit()
    ports = control("full").running()["ports"]
    assert ports["Ethernet1"]["lag"] == "Port-Channel1"
    assert ports["Port-Channel1"]["vlans"] == "100"


def test_namespace_prefixes_are_arbitrary(session):
    s = session("full")
    edit(
        s,
        f'<q:network-instances xmlns:q="{NI}"><q:network-instance><q:name>default</q:name><q:vlans>'
        f'<z:vlan xmlns:z="{NI}" xmlns:o="{NC}" o:operation="create"><q:vlan-id> 300 </q:vlan-id>'
        "<q:config><z:vlan-id>300</z:vlan-id></q:config></z:vlan></q:vlans></q:network-instance></q:network-instances>",
    )
    s.commit()
    assert ids(s) == [300]


def test_view_reports_trunk_without_list_as_open(session, control):
    s, c = session("full"), control("full")
    edit(s, vlans(vlan(10), vlan(20)), trunk("Ethernet1", 10))
    s.commit()
    edit(s, port("Ethernet1", '<trunk-vlans nc:operation="remove">10</trunk-vlans>'))
    s.commit()
    ethernet1 = c.running()["ports"]["Ethernet1"]
    assert ethernet1["openTrunk"] is True
    assert ethernet1["vlans"] == "10,20"


def test_subtree_filter_selects_matching_data(session):
    s = session("full")
    edit(s, vlans(vlan(10), vlan(20)), trunk("Ethernet1", 10, 20))
    s.commit()

    def select(inner):
        filtered = s.get_config(source="running", filter=("subtree", inner))
        return filtered.data_ele

    # containment and selection; keys come along
    data = select(f'<interfaces xmlns="{IF}"><interface><config><enabled/></config></interface></interfaces>')
    assert len(data) == 1
    found = data.findall("if:interfaces/if:interface", NS)
    assert [e.findtext("if:name", namespaces=NS) for e in found] == [f"Ethernet{n}" for n in range(1, 5)]
    assert [child.tag for child in found[0].find("if:config", NS)] == [f"{{{IF}}}enabled"]
    # content match alone selects the whole entry
    data = select(f'<interfaces xmlns="{IF}"><interface><name>Ethernet1</name></interface></interfaces>')
    assert len(data.findall(".//if:interface", NS)) == 1
    assert len(data.findall(".//vlan:trunk-vlans", NS)) == 2
    # content match with selection
    data = select(
        f'<interfaces xmlns="{IF}"><interface><name>Ethernet1</name><ethernet xmlns="{ETH}"/></interface></interfaces>'
    )
    assert data.find(".//eth:ethernet", NS) is not None
    assert data.find("if:interfaces/if:interface/if:config", NS) is None
    # several entries, each once
    one = "<vlan><vlan-id>{}</vlan-id></vlan>"
    data = select(vlans(one.format(10), one.format(20), one.format(10), one.format(30)))
    assert [e.text for e in data.findall(".//ni:vlan/ni:vlan-id", NS)] == ["10", "20"]
    # a match that is not a key
    data = select(vlans("<vlan><config><name>v20</name></config></vlan>"))
    assert [e.text for e in data.findall(".//ni:vlan/ni:vlan-id", NS)] == ["20"]
    # nothing matches
    assert len(select(f'<interfaces xmlns="{IF}"><interface><name>no</name></interface></interfaces>')) == 0
    assert len(select('<interfaces xmlns="urn:other"/>')) == 0
    # no namespace is a wildcard
    assert len(select('<interfaces xmlns=""/>').findall(".//if:interface", NS)) == 4


def test_an_empty_filter_selects_nothing(session):
    s = session("full")
    get = etree.fromstring(f'<get-config xmlns="{NC}"><source><running/></source><filter type="subtree"/></get-config>')
    reply = s.dispatch(get)
    data = etree.fromstring(reply.xml.encode()).find(f"{{{NC}}}data")
    assert data is not None and len(data) == 0


def test_get_shows_state(session):
    s = session("full")
    data = s.get(filter=("subtree", f'<interfaces xmlns="{IF}"><interface><state/></interface></interfaces>')).data_ele
    states = data.findall(".//if:state", NS)
    assert [e.findtext("if:oper-status", namespaces=NS) for e in states] == ["UP"] * 4
    configured = s.get_config(source="running").data_ele
    assert configured.find(".//if:state", NS) is None
    e = refused(edit, s, f'<interfaces xmlns="{IF}"><interface><name>Ethernet1</name><state><name>x</name></state></interface></interfaces>')
    assert e.tag == "unknown-element"


def test_xpath_is_not_announced_and_refused(session):
    s = session("full")
    get = etree.fromstring(
        f'<get-config xmlns="{NC}"><source><running/></source><filter type="xpath" select="/x"/></get-config>'
    )
    assert refused(s.dispatch, get).tag == "bad-attribute"


def test_writable_running_and_startup(session, control):
    s, c = session("direct"), control("direct")
    s.edit_config(target="running", config=config(vlans(vlan(100))))
    assert ids(s) == [100]
    bad = port("Ethernet1", "<interface-mode>ACCESS</interface-mode><trunk-vlans>5</trunk-vlans>")
    e = refused(s.edit_config, target="running", config=config(vlans(vlan(101)), bad))
    assert e.tag == "unknown-element"
    assert ids(s) == [100]
    c.request("POST", "/reboot", {})
    s = session("direct")
    assert ids(s) == []
    s.edit_config(target="running", config=config(vlans(vlan(100))))
    s.copy_config(source="running", target="startup")
    c.request("POST", "/reboot", {})
    s = session("direct")
    assert ids(s) == [100]
    s.delete_config("startup")
    assert ids(s, "startup") == []
    s.copy_config(source="running", target="startup")


def test_unannounced_datastores_and_operations_are_refused(session):
    full, direct = session("full"), session("direct")
    target = '<{0} xmlns="' + NC + '"><target><{1}/></target></{0}>'
    for s, store in ((full, "startup"), (direct, "candidate")):
        assert refused(s.dispatch, etree.fromstring(target.format("lock", store))).tag == "invalid-value"
    running = etree.fromstring(
        f'<edit-config xmlns="{NC}"><target><running/></target><config/></edit-config>'
    )
    assert refused(full.dispatch, running).tag == "invalid-value"
    assert refused(direct.dispatch, etree.fromstring(f'<commit xmlns="{NC}"/>')).tag == "operation-not-supported"


def test_hand_edits_change_running(session, control):
    s, c = session("full"), control("full")
    version = c.running()["version"]
    c.request("POST", "/edit", {"defineVlans": {"50": "by-hand"}, "port": "Ethernet2", "mode": "trunk", "vlans": "50-60", "native": 50})
    running = c.running(since=version)
    assert running["version"] > version
    assert running["ports"]["Ethernet2"] == {
        "mode": "trunk", "vlans": "50", "configured": "50-60", "native": 50, "access": None, "openTrunk": False, "lag": None,
        "disabled": False,
    }
    assert names(s, "running") == ["by-hand"]
    c.request("POST", "/edit", vlans(vlan(51)), "application/xml")
    assert ids(s) == [50, 51]
    c.request("POST", "/edit", {"removeVlans": "50-51"})
    c.request("POST", "/edit", {"port": "Ethernet2", "clear": True})
    assert ids(s) == []
    assert c.running()["ports"]["Ethernet2"]["mode"] is None
