//! Reads what `rstp/show` of ovs-vswitchd(8) says, and whether the spanning bridges has settled. Pure.

use std::collections::BTreeMap;

use crate::dataplane::plan::{Peer, Plan};

/// RSTP's state on the bridges, by name.
pub(super) type RstpState = BTreeMap<String, BridgeRstp>;

/// RSTP's state on one bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BridgeRstp {
    /// The priority and the address of the root that it knows.
    pub(super) root: (String, String),
    /// Its ports, by interface.
    pub(super) ports: BTreeMap<String, PortState>,
}

/// RSTP's state on one port, in IEEE 802.1D's fields, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PortState {
    /// `root`, `designated`, `alternate`, `backup` or `disabled` (without a carrier).
    pub(super) role: String,
    /// `forwarding`, `learning` or `discarding`.
    pub(super) state: String,
}

/// Reads the answer to `rstp/show` without arguments.
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

/// Whether nothing will change any more by itself, when the interfaces in `up` are up and the others down: every
/// port has taken notice of its carrier and forwards, or has a role that never does; and switches that are
/// linked agree on their root.
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
                // Whether the other end is up is not ours to know.
                Peer::Outside { .. } => disabled || up(&port.interface),
                Peer::Port { interface, .. } => {
                    let carrier = up(&port.interface) && up(interface);
                    disabled != carrier
                        && (!carrier || peer_root(plan, bridges, interface) == Some(&bridge_rstp.root))
                }
            }
    })
}

/// The root that the bridge with this interface knows.
fn peer_root<'a>(plan: &Plan, bridges: &'a RstpState, interface: &str) -> Option<&'a (String, String)> {
    let (bridge, _) = plan.ports().find(|(_, port)| port.interface == interface)?;
    bridges.get(&bridge.name).map(|bridge_rstp| &bridge_rstp.root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    /// As Open vSwitch 3.1 writes it.
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
    fn what_the_program_shows_is_read() {
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
    fn a_tree_has_settled_when_nothing_is_under_way() {
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
    fn a_link_that_was_taken_down_has_to_be_noticed() {
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
