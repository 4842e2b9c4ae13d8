//! The message of a suspicion.

use std::fmt::Write as _;

use eno_schemas::Text;

use crate::kinds::LeadsTo;

use super::{Fault, Topology};

/// Maximum faults that a message names.
const MAX_NAMED: usize = 3;
/// Maximum bytes of the name of a fault.
const MAX_BYTES: usize = 72;

/// What a message says of faults besides their names.
#[derive(Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools, reason = "they are parts of a sentence")]
pub struct Wording {
    /// How many probes fail.
    pub lost: usize,
    /// How many further faults explain the probes together.
    pub others: usize,
    /// Each fault explains all probes alone.
    pub one_of: bool,
    /// Something on the way of the probes is suspect.
    pub is_on_way: bool,
    /// There is no other suspicion, and some probes pass.
    pub all_others_pass: bool,
    /// Probes that pass may have gone over one of the faults.
    pub others_may_pass: bool,
    /// The only fault is a gateway that answers nobody.
    pub is_silent: bool,
}

impl Wording {
    /// The message about faults, the likeliest first.
    pub fn message(self, topology: &Topology, faults: &[&Fault]) -> String {
        let mut message = match faults {
            [] => String::new(),
            [one] if self.is_silent => format!("nothing answers for {}", name(topology, one)),
            [one] => name(topology, one),
            _ if self.one_of => format!("one of {}", names(topology, faults)),
            _ => format!("one or more of {}", names(topology, faults)),
        };
        if self.others > 0 {
            let these = if faults.len() == 1 { "this" } else { "these" };
            let _ = write!(message, ", or several of {these} and {} more", self.others);
        }
        message.push_str(": ");
        message.push_str(&self.verdict(faults.len() == 1 && self.others == 0));
        message
    }

    fn verdict(self, is_single: bool) -> String {
        let through_it = is_single && self.is_on_way && !self.others_may_pass;
        let mut verdict = match (self.lost, through_it) {
            (1, true) if self.is_silent => "the only probe fails".to_owned(),
            (lost, true) if self.is_silent => format!("all {lost} probes fail"),
            (1, true) => "the only probe through it fails".to_owned(),
            (lost, true) => format!("all {lost} probes through it fail"),
            (1, false) => "1 probe fails".to_owned(),
            (lost, false) => format!("{lost} probes fail"),
        };
        if !self.is_on_way {
            verdict.push_str(", and no port or link between them is suspect");
        } else if self.all_others_pass {
            verdict.push_str(", all others pass");
        }
        verdict
    }
}

fn names(topology: &Topology, faults: &[&Fault]) -> String {
    let mut named: Vec<String> = faults.iter().take(MAX_NAMED).map(|fault| name(topology, fault)).collect();
    let last = match faults.len().saturating_sub(MAX_NAMED) {
        0 => named.pop().unwrap_or_default(),
        more => format!("{more} more"),
    };
    format!("{} or {last}", named.join(", "))
}

/// What a fault is called.
fn name(topology: &Topology, fault: &Fault) -> String {
    let port = |(device, index): &(_, u16)| {
        let name = topology.port_names(device).get(usize::from(*index));
        name.map_or_else(|| device.to_string(), |name| format!("{device} {name}"))
    };
    let name = match fault {
        Fault::Node(name) => name.to_string(),
        Fault::Gateway(label) => label.clone(),
        Fault::Link(router, switch) if topology.is_router(&router.0) => {
            format!("{} to {}", port(switch), port(router))
        }
        Fault::Link(one, other) => format!("{} to {}", port(one), port(other)),
        Fault::Port(end) => match topology.leads_to(&end.0, end.1) {
            Some(LeadsTo::Node { node, interface }) => format!("{} to {node} {interface}", port(end)),
            Some(LeadsTo::PhysicalNetwork(network)) => format!("{} to {network}", port(end)),
            Some(LeadsTo::Device { device, port: far }) => format!("{} to {device} {far}", port(end)),
            None => port(end),
        },
    };
    Text::at_most(&name, MAX_BYTES).to_string()
}
