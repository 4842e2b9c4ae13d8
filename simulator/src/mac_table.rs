//! The MAC table of a switch: what its data plane has learnt, and what a test put there.

use crate::dialect::View;
use crate::faults::Fault;
use crate::model::tree::Container;

/// A MAC address that a switch has learnt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Learnt {
    /// The address, as the switch writes it.
    pub mac: String,
    /// The VLAN.
    pub vlan: u16,
    /// The port or link aggregation.
    pub port: String,
}

/// How a dialect shows its MAC table.
#[derive(Debug, Clone, Copy)]
pub enum MacTable {
    /// Not at all.
    Hidden,
    /// As state data of `<get>`, which this adds.
    State(fn(&mut Container, &[Learnt])),
    /// As the reply to an operation of this name, which this writes.
    Operation(&'static str, fn(&View, &[Learnt]) -> String),
}

impl MacTable {
    /// The name of its operation, if it has one.
    pub fn operation(self) -> Option<&'static str> {
        match self {
            Self::Operation(name, _) => Some(name),
            Self::Hidden | Self::State(_) => None,
        }
    }
}

/// The addresses that faults put into the table.
pub fn put_there(faults: &[Fault]) -> Vec<Learnt> {
    let mut learnt = Vec::new();
    for fault in faults {
        let Fault::Learn { mac, vlan, port, number } = fault else { continue };
        let entry = |mac| Learnt { mac, vlan: *vlan, port: port.clone() };
        match number {
            None => learnt.push(entry(mac.clone())),
            Some(number) => learnt.extend((0..*number).map(|at| entry(later(mac, at)))),
        }
    }
    learnt
}

/// The address so many after this one, of six bytes with colons.
fn later(mac: &str, by: u32) -> String {
    let first = mac.split(':').fold(0, |all, byte| all << 8 | u64::from_str_radix(byte, 16).unwrap_or(0));
    let bytes = (first + u64::from(by)).to_be_bytes();
    bytes[2..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// The members of link aggregations learn for these.
pub fn by_aggregation(mut learnt: Vec<Learnt>, view: &View) -> Vec<Learnt> {
    for entry in &mut learnt {
        if let Some(lag) = view.ports.get(&entry.port).and_then(|port| port.lag.as_ref()) {
            entry.port.clone_from(lag);
        }
    }
    learnt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_put_addresses_into_the_table() {
        let learn =
            |mac: &str, number| Fault::Learn { mac: mac.to_owned(), vlan: 7, port: "e1".to_owned(), number };
        let table =
            put_there(&[learn("025E.0001", None), Fault::Clear {}, learn("02:00:00:00:00:fe", Some(3))]);
        let macs: Vec<_> = table.iter().map(|entry| entry.mac.as_str()).collect();
        assert_eq!(macs, ["025E.0001", "02:00:00:00:00:fe", "02:00:00:00:00:ff", "02:00:00:00:01:00"]);
        assert!(table.iter().all(|entry| (entry.vlan, entry.port.as_str()) == (7, "e1")));
    }
}
