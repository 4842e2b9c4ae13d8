"""OpenConfig fragments."""

NC = "urn:ietf:params:xml:ns:netconf:base:1.0"
NI = "http://openconfig.net/yang/network-instance"
IF = "http://openconfig.net/yang/interfaces"
ETH = "http://openconfig.net/yang/interfaces/ethernet"
VLAN = "http://openconfig.net/yang/vlan"
NS = {"nc": NC, "ni": NI, "if": IF, "eth": ETH, "vlan": VLAN}


def config(*parts):
    return f'<config xmlns="{NC}" xmlns:nc="{NC}">{"".join(parts)}</config>'


def vlans(*entries):
    return (
        f'<network-instances xmlns="{NI}"><network-instance><name>default</name>'
        f'<vlans>{"".join(entries)}</vlans></network-instance></network-instances>'
    )


def vlan(vid, name=None, operation=None):
    attribute = f' nc:operation="{operation}"' if operation else ""
    name = name or f"v{vid}"
    return (
        f"<vlan{attribute}><vlan-id>{vid}</vlan-id><config><vlan-id>{vid}</vlan-id>"
        f"<name>{name}</name><status>ACTIVE</status></config></vlan>"
    )


def no_vlan(vid, operation="delete"):
    return f'<vlan nc:operation="{operation}"><vlan-id>{vid}</vlan-id></vlan>'


def port(name, content):
    return (
        f'<interfaces xmlns="{IF}"><interface><name>{name}</name><ethernet xmlns="{ETH}">'
        f'<switched-vlan xmlns="{VLAN}"><config>{content}</config></switched-vlan>'
        "</ethernet></interface></interfaces>"
    )


def trunk(name, *trunk_vlans):
    listed = "".join(f"<trunk-vlans>{v}</trunk-vlans>" for v in trunk_vlans)
    return port(name, f"<interface-mode>TRUNK</interface-mode>{listed}")
