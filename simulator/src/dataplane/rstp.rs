//! Parses the output of `rstp/show` of ovs-vswitchd(8) and checks whether RSTP has converged. Does no IO.

use std::collections::BTreeMap;

use crate::dataplane::plan::{Peer, Plan};

/// The RSTP state of all bridges, by bridge name.
pub(super) type RstpState = BTreeMap<String, BridgeRstp>;

/// The RSTP state of one bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BridgeRstp {
    /// Priority and address of the root bridge.
    pub(super) root: (String, String),
    /// Its ports, by interface.
    pub(super) ports: BTreeMap<String, PortState>,
}

/// The RSTP state of one port, in the terms of IEEE 802.1D in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PortState {
    /// `root`, `designated`, `alternate`, `backup` or `disabled` (without a carrier).
    pub(super) role: String,
    /// `forwarding`, `learning` or `discarding`.
    pub(super) state: String,
}

/// Parses the output of `rstp/show` without arguments.
pub(super) fn parse(text: &str) -> RstpState {
    let mut bridges = RstpState::new();
    let mut name = String::new();
    let mut in_root_section = false;
    for line in text.lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        match fields[..] {
            ["----", bridge, "----"] => {
                bridge.clone_into(&mut name);
                bridges.insert(name.clone(), BridgeRstp::default());
            }
            ["Root", "ID:"] => in_root_section = true,
            ["Bridge", "ID:"] => in_root_section = false,
            _ => {
                if let Some(bridge_rstp) = bridges.get_mut(&name) {
                    bridge_rstp.parse_line(&fields, in_root_section);
                }
            }
        }
    }
    bridges
}

impl BridgeRstp {
    fn parse_line(&mut self, fields: &[&str], in_root_section: bool) {
        match *fields {
            ["stp-priority", priority] if in_root_section => priority.clone_into(&mut self.root.0),
            ["stp-system-id", address] if in_root_section => address.clone_into(&mut self.root.1),
            [interface, role, state @ ("Forwarding" | "Learning" | "Discarding"), _, _] => {
                let state = PortState { role: role.to_lowercase(), state: state.to_lowercase() };
                self.ports.insert(interface.to_owned(), state);
            }
            _ => {}
        }
    }
}

/// Whether RSTP has converged for the enabled interfaces, `up`. Each port must have noticed its carrier, and forward
/// or have a role that never forwards. Linked bridges must agree on the root.
pub(super) fn converged(plan: &Plan, up: impl Fn(&str) -> bool, bridges: &RstpState) -> bool {
    plan.ports().all(|(bridge, port)| {
        let Some(bridge_rstp) = bridges.get(&bridge.name) else { return false };
        let Some(state) = bridge_rstp.ports.get(&port.interface) else { return false };
        let stable = match (state.role.as_str(), state.state.as_str()) {
            ("root" | "designated", state) => state == "forwarding",
            (_, state) => state == "discarding",
        };
        let disabled = state.role == "disabled";
        stable
            && match &port.peer {
                // The state of an external end is unknown.
                Peer::Outside { .. } => disabled || up(&port.interface),
                Peer::Port { interface, .. } => {
                    let carrier = up(&port.interface) && up(interface);
                    disabled != carrier
                        && (!carrier || peer_root(plan, bridges, interface) == Some(&bridge_rstp.root))
                }
            }
    })
}

/// Whether each bridge forwards to the second one of its switch.
pub(super) fn second_bridges_are_reached(plan: &Plan, bridges: &RstpState) -> bool {
    plan.bridges.iter().all(|bridge| {
        let downlink = bridges.get(&bridge.name).and_then(|rstp| rstp.ports.get(&bridge.vrf_downlink()));
        downlink.is_some_and(|port| port.state == "forwarding")
    })
}

/// The root according to the bridge with this interface.
fn peer_root<'a>(plan: &Plan, bridges: &'a RstpState, interface: &str) -> Option<&'a (String, String)> {
    let (bridge, _) = plan.ports().find(|(_, port)| port.interface == interface)?;
    bridges.get(&bridge.name).map(|bridge_rstp| &bridge_rstp.root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    /// Output of Open vSwitch 3.1.
    const SHOWN: &str = "\
---- sw1 ----
Root ID:
  stp-priority    28672
  stp-system-id   02:65:6e:6f:00:02
  stp-hello-time  2s
  stp-max-age     20s
  stp-fwd-delay   15s
  root-port       sw1p49
  root-path-cost  2000

Bridge ID:
  stp-priority    32768
  stp-system-id   02:65:6e:6f:00:01
  stp-hello-time  2s
  stp-max-age     20s
  stp-fwd-delay   15s

  Interface  Role       State      Cost     Pri.Nbr 
  ---------- ---------- ---------- -------- -------
  sw1p49     Root       Forwarding 2000     128.1
  sw1p1      Disabled   Discarding 2000     128.2

---- sw2 ----
Root ID:
  stp-priority    28672
  stp-system-id   02:65:6e:6f:00:02
  stp-hello-time  2s
  stp-max-age     20s
  stp-fwd-delay   15s
  This bridge is the root

Bridge ID:
  stp-priority    28672
  stp-system-id   02:65:6e:6f:00:02
  stp-hello-time  2s
  stp-max-age     20s
  stp-fwd-delay   15s

  Interface  Role       State      Cost     Pri.Nbr 
  ---------- ---------- ---------- -------- -------
  sw2p1      Designated Forwarding 2000     128.1

";

    fn plan() -> Plan {
        let wires = ["leaf1/Ethernet1=eth1".parse().expect("a wire")];
        Plan::new(&Topology::leaf_spine(1, 1, 1), &wires).expect("it fits")
    }

    #[test]
    fn parse_reads_rstp_show_output() {
        let bridges = parse(SHOWN);
        let root = ("28672".to_owned(), "02:65:6e:6f:00:02".to_owned());
        assert_eq!((&bridges["sw1"].root, &bridges["sw2"].root), (&root, &root));
        let shown = |bridge: &str, port: &str| {
            let PortState { role, state } = &bridges[bridge].ports[port];
            format!("{role} {state}")
        };
        assert_eq!(shown("sw1", "sw1p49"), "root forwarding");
        assert_eq!(shown("sw1", "sw1p1"), "disabled discarding");
        assert_eq!(shown("sw2", "sw2p1"), "designated forwarding");
    }

    #[test]
    fn rstp_is_converged_only_without_pending_transitions() {
        let plan = plan();
        assert!(converged(&plan, |_| true, &parse(SHOWN)));
        let under_way = [
            SHOWN.replace("Designated Forwarding", "Designated Discarding"),
            SHOWN.replace("Designated Forwarding", "Designated Learning  "),
            SHOWN.replace("Root       Forwarding", "Disabled   Discarding"),
            SHOWN.replacen("02:65:6e:6f:00:02", "02:65:6e:6f:00:01", 1),
            SHOWN.replace("  sw2p1 ", "  sw2p9 "),
            String::new(),
        ];
        for text in under_way {
            assert!(!converged(&plan, |_| true, &parse(&text)), "{text}");
        }
    }

    #[test]
    fn rstp_is_not_converged_until_bridges_notice_a_disabled_link() {
        let plan = plan();
        let down = |interface: &str| interface != "sw2p1";
        assert!(!converged(&plan, down, &parse(SHOWN)));
        let noticed = SHOWN
            .replace("Root       Forwarding", "Disabled   Discarding")
            .replace("Designated Forwarding", "Disabled   Discarding")
            .replacen("02:65:6e:6f:00:02", "02:65:6e:6f:00:01", 1);
        assert!(converged(&plan, down, &parse(&noticed)));
        let isolated = |interface: &str| interface != "sw1p1";
        assert!(converged(&plan, isolated, &parse(SHOWN)));
        assert!(!converged(
            &plan,
            isolated,
            &parse(&SHOWN.replace("Disabled   Discarding", "Designated Forwarding"))
        ));
    }
}
