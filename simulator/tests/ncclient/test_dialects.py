"""The models of all dialects, in the XML of the vendors' documentation."""

import pytest
from lxml import etree
from model import NC, config
from ncclient.operations import RPCError

JUNOS = "http://yang.juniper.net/junos-qfx/conf/"
SRL_IF = "urn:nokia.com:srlinux:chassis:interfaces"
SRL_VLAN = "urn:nokia.com:srlinux:chassis:interfaces-vlans"
SRL_NI = "urn:nokia.com:srlinux:net-inst:network-instance"
DOT1Q = "urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge"
IETF_IF = "urn:ietf:params:xml:ns:yang:ietf-interfaces"
NXOS = "http://cisco.com/ns/yang/cisco-nx-os-device"


def edit(session, *parts, **options):
    return session.edit_config(target="candidate", config=config(*parts), **options)


def refused(call, *args, **kwargs):
    with pytest.raises(RPCError) as caught:
        call(*args, **kwargs)
    return caught.value


def junos(interfaces="", vlans=""):
    return (
        f'<configuration xmlns="{JUNOS}root"><interfaces xmlns="{JUNOS}interfaces">{interfaces}</interfaces>'
        f'<vlans xmlns="{JUNOS}vlans">{vlans}</vlans></configuration>'
    )


def junos_trunk(port, *members, more=""):
    listed = "".join(f"<members>{m}</members>" for m in members)
    return (
        f"<interface><name>{port}</name>{more}<unit><name>0</name><family><ethernet-switching>"
        f'<interface-mode>trunk</interface-mode><vlan nc:operation="replace">{listed}</vlan></ethernet-switching>'
        "</family></unit></interface>"
    )


def srl_trunk(port, vid, name):
    return (
        f'<interface xmlns="{SRL_IF}"><name>{port}</name><vlan-tagging xmlns="{SRL_VLAN}">true</vlan-tagging>'
        f'<subinterface><index>{vid}</index><type>bridged</type><vlan xmlns="{SRL_VLAN}"><encap>'
        f"<single-tagged><vlan-id>{vid}</vlan-id></single-tagged></encap></vlan></subinterface></interface>"
        f'<network-instance xmlns="{SRL_NI}"><name>{name}</name><type>mac-vrf</type>'
        f"<interface><name>{port}.{vid}</name></interface></network-instance>"
    )


def dot1q(inner):
    return (
        f'<bridges xmlns="{DOT1Q}"><bridge><name>br0</name><component><name>br0</name>{inner}</component></bridge>'
        "</bridges>"
    )


def registration(vids, port, tagging="tagged"):
    return (
        f"<filtering-database><vlan-registration-entry><database-id>0</database-id><vids>{vids}</vids>"
        f"<entry-type>static</entry-type><port-map><port-ref>{port}</port-ref><static-vlan-registration-entries>"
        "<registrar-admin-control>fixed-new-ignored</registrar-admin-control>"
        f"<vlan-transmitted>{tagging}</vlan-transmitted></static-vlan-registration-entries></port-map>"
        "</vlan-registration-entry></filtering-database>"
    )


def nxos(inner):
    return f'<System xmlns="{NXOS}">{inner}</System>'


def nxos_vlan(vid, name):
    return (
        f"<bd-items><bd-items><BD-list><fabEncap>vlan-{vid}</fabEncap><name>{name}</name></BD-list></bd-items></bd-items>"
    )


def nxos_trunk(port, vlans):
    return (
        f"<intf-items><phys-items><PhysIf-list><id>{port}</id><mode>trunk</mode><trunkVlans>{vlans}</trunkVlans>"
        "</PhysIf-list></phys-items></intf-items>"
    )


@pytest.mark.parametrize(
    "name, module",
    [
        ("junos", f"{JUNOS}root?module=junos-qfx-conf-root&revision=2023-01-01"),
        ("junos", "http://xml.juniper.net/netconf/junos/1.0"),
        ("srlinux", f"{SRL_IF}?module=srl_nokia-interfaces&revision=2024-07-31"),
        ("ieee8021q", f"{DOT1Q}?module=ieee802-dot1q-bridge&revision=2023-10-26"),
        ("nxos", f"{NXOS}?revision=2019-07-18&module=Cisco-NX-OS-device"),
    ],
)
def test_hello_announces_model_of_dialect(session, name, module):
    assert module in set(session(name).server_capabilities)


def test_each_dialect_carries_a_vlan_on_a_trunk(session, control):
    edits = {
        "junos": ("xe-0/0/1", [junos(junos_trunk("xe-0/0/1", "v100"), "<vlan><name>v100</name><vlan-id>100</vlan-id></vlan>")]),
        "srlinux": ("ethernet-1/1", [srl_trunk("ethernet-1/1", 100, "v100")]),
        "ieee8021q": (
            "eth1",
            [dot1q("<bridge-vlan><vlan><vid>100</vid><name>v100</name></vlan></bridge-vlan>" + registration("100", 1))],
        ),
        "nxos": ("eth1/1", [nxos(nxos_vlan(100, "v100") + nxos_trunk("eth1/1", "100"))]),
    }
    for name, (port, parts) in edits.items():
        s = session(name)
        edit(s, *parts)
        s.validate(source="candidate")
        s.commit()
        running = control(name).running()
        assert running["vlans"]["100"]["name"] == "v100", name
        assert "100" in running["ports"][port]["vlans"].split(","), name
        assert running["ports"][port]["mode"] == "trunk", name
        if name in ("srlinux", "ieee8021q"):
            # lxml drops prefixes that only values use when the default namespace is the same.
            continue
        # The configuration that is read can be written back.
        data = s.get_config(source="running").data_ele
        again = "".join(etree.tostring(child).decode() for child in data)
        edit(s, again, default_operation="replace")
        s.commit()
        assert control(name).running()["ports"] == running["ports"], name


def test_junos_checks_members_and_reports_edit_path(session, control):
    s = session("junos")
    ports = control("junos").running()["ports"]
    assert ports["xe-0/0/1"]["access"] == 1 and ports["xe-0/0/3"]["lag"] == "ae0"
    vlan = "<vlan><name>v100</name><vlan-id>100</vlan-id></vlan>"
    edit(s, junos(junos_trunk("xe-0/0/1", "v100", "200-201"), vlan))
    s.commit()
    # Junos accepts the deletion of a VLAN that a port names.
    edit(s, junos(vlans='<vlan nc:operation="delete"><name>v100</name></vlan>'))
    s.commit()
    assert control("junos").running()["ports"]["xe-0/0/1"]["vlans"] == ""
    edit(s, junos(junos_trunk("xe-0/0/1")))
    e = refused(s.commit)
    assert "vlan members" in e.message
    assert e.path.strip() == "[edit interfaces xe-0/0/1]"


def test_junos_with_confirmed_commit_1_0_commits(session):
    s = session("junos-old")
    announced = set(s.server_capabilities)
    assert "urn:ietf:params:netconf:capability:confirmed-commit:1.0" in announced
    edit(s, junos(vlans="<vlan><name>v100</name><vlan-id>100</vlan-id></vlan>"))
    s.commit(confirmed=True, timeout="60")
    s.commit()
    persist = f'<commit xmlns="{NC}"><confirmed/><persist>x</persist></commit>'
    assert refused(s.dispatch, etree.fromstring(persist)).tag == "unknown-element"


def test_srlinux_checks_subinterfaces(session, control):
    s = session("srlinux")
    edit(s, srl_trunk("ethernet-1/1", 100, "v100"))
    s.commit()
    gone = '<subinterface nc:operation="delete"><index>100</index></subinterface>'
    edit(s, f'<interface xmlns="{SRL_IF}"><name>ethernet-1/1</name>{gone}</interface>')
    e = refused(s.commit)
    assert e.tag == "data-missing" and "ethernet-1/1.100" in e.path
    edit(
        s,
        f'<network-instance xmlns="{SRL_NI}" nc:operation="delete"><name>v100</name></network-instance>',
    )
    s.commit()
    assert control("srlinux").running()["ports"]["ethernet-1/1"]["mode"] is None
    edit(s, f'<interface xmlns="{SRL_IF}"><name>ethernet-1/9</name></interface>')
    assert "does not exist" in refused(s.validate, source="candidate").message


def test_ieee_port_numbers_are_state(session):
    s = session("ieee8021q")
    ports = f'<interfaces xmlns="{IETF_IF}"><interface><name/><bridge-port xmlns="{DOT1Q}"/></interface></interfaces>'
    found = s.get(filter=("subtree", ports)).data_ele.findall(f".//{{{DOT1Q}}}port-number")
    assert [e.text for e in found] == ["1", "2"]
    assert not s.get_config(source="running").data_ele.findall(f".//{{{DOT1Q}}}port-number")
    number = (
        f'<interfaces xmlns="{IETF_IF}"><interface><name>eth1</name><bridge-port xmlns="{DOT1Q}">'
        "<port-number>7</port-number></bridge-port></interface></interfaces>"
    )
    assert refused(edit, s, number).tag == "unknown-element"
    edit(s, dot1q(registration("5-9", 1)))
    edit(s, dot1q(registration("7", 2)))
    assert "registered" in refused(s.commit).message
    assert refused(edit, s, dot1q(registration("9-5", 1))).tag == "invalid-value"


def test_nxos_refuses_invalid_and_reserved_vlans(session, control):
    s = session("nxos")
    assert refused(edit, s, nxos(nxos_trunk("eth1/1", "5-x"))).tag == "invalid-value"
    s.edit_config(target="running", config=config(nxos(nxos_vlan(100, "v100"))))
    e = refused(s.edit_config, target="running", config=config(nxos(nxos_vlan(3999, "v3999"))))
    assert "reserved" in e.message
    assert control("nxos").running()["ports"]["eth1/1"]["access"] == 1
