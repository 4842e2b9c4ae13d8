//! The MAC addresses of probes that a device has learnt, picked from its MAC table while that is read. Pure.
//!
//! A table may have 100,000 entries, and few of them are of probes. The others are not kept.

use std::collections::{BTreeMap, BTreeSet};

use eno_fabric_driver::desired::{desired_vlans, listed_name, ports_by};
use eno_sbi::TooLarge;
use eno_schemas::{
    FabricDesired, FabricPort, Lookup, Station, VlanId, VlanSet, parse_vlan_name, probe_mac_prefix,
};

use crate::memory::{Counter, Kept};

/// What a command asks of a MAC table: addresses of probes, in its VLANs and on its ports.
#[derive(Debug)]
pub struct Wanted<'a> {
    cluster: &'a str,
    prefix: [u8; 2],
    vlans: VlanSet,
    /// By what they stand for on the device.
    ports: BTreeMap<&'a str, Vec<&'a FabricPort>>,
}

impl<'a> Wanted<'a> {
    /// What this command asks.
    pub fn of(desired: &'a FabricDesired) -> Self {
        Self {
            cluster: &desired.cluster,
            prefix: probe_mac_prefix(&desired.cluster),
            vlans: desired_vlans(desired),
            ports: ports_by(desired, |port| Some(listed_name(port))),
        }
    }

    /// The VLAN that has this name, if that is one of ours.
    pub(crate) fn vlan_named(&self, name: &str) -> Option<VlanId> {
        parse_vlan_name(name).filter(|(cluster, _)| *cluster == self.cluster).map(|(_, vid)| vid)
    }

    /// The listed ports of an interface, which may be named with a unit: `xe-0/0/1.0`.
    fn listed(&self, interface: &str) -> &[&'a FabricPort] {
        let without_unit = || {
            let (interface, unit) = interface.rsplit_once('.')?;
            unit.bytes().all(|digit| digit.is_ascii_digit()).then(|| self.ports.get(interface))?
        };
        self.ports.get(interface).or_else(without_unit).map_or(&[], Vec::as_slice)
    }
}

/// An entry of a MAC table while it is read.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// The address.
    pub(crate) mac: Option<[u8; 6]>,
    /// The VLAN.
    pub(crate) vlan: Option<VlanId>,
    /// The interface, with or without a unit.
    pub(crate) interface: String,
    /// It was configured, and says nothing about who is there.
    pub(crate) is_static: bool,
}

/// Reads a MAC address: twelve hexadecimal digits in either case, with `:`, `-`, `.` or nothing between them.
pub(crate) fn mac(text: &str) -> Option<[u8; 6]> {
    let (mut bytes, mut digits) = ([0; 6], 0);
    for character in text.chars().filter(|character| !matches!(character, ':' | '-' | '.')) {
        let byte: &mut u8 = bytes.get_mut(digits / 2)?;
        *byte = *byte << 4 | u8::try_from(character.to_digit(16)?).ok()?;
        digits += 1;
    }
    (digits == 12).then_some(bytes)
}

/// Picks what was asked of a MAC table.
#[derive(Debug)]
pub(crate) struct Picker<'a> {
    wanted: &'a Wanted<'a>,
    found: BTreeSet<Station>,
    kept: Counter,
}

impl<'a> Picker<'a> {
    /// Nothing is picked yet.
    pub(crate) fn new(wanted: &'a Wanted<'a>) -> Self {
        Self { wanted, found: BTreeSet::new(), kept: Counter::default() }
    }

    /// Keeps the entry if it is asked for.
    pub(crate) fn entry(&mut self, entry: &Entry) -> Result<(), TooLarge> {
        let (Some(mac), Some(vlan)) = (entry.mac, entry.vlan) else { return Ok(()) };
        if entry.is_static || !mac.starts_with(&self.wanted.prefix) || !self.wanted.vlans.contains(vlan) {
            return Ok(());
        }
        let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
        for port in self.wanted.listed(&entry.interface) {
            let station = Station { mac: mac.clone(), vlan, port: port.name.clone() };
            let bytes = size_of::<Station>() + station.mac.len() + station.port.len();
            if !self.found.insert(station) {
                continue;
            }
            if self.found.len() > Lookup::MAX_STATIONS {
                self.found.pop_last();
            } else {
                self.kept.entry(bytes);
            }
        }
        self.kept.check()
    }

    /// What was picked, ascending.
    pub(crate) fn finish(self) -> Found {
        Found { stations: self.found.into_iter().collect(), memory: self.kept.into() }
    }
}

/// What a MAC table says of the addresses of probes.
#[derive(Debug, Default)]
pub struct Found {
    /// The addresses, ascending.
    pub stations: Vec<Station>,
    /// Their memory.
    pub memory: Kept,
}

#[cfg(test)]
pub(crate) mod tests {
    use eno_conformance::fabrics;
    use eno_schemas::Device;

    use super::*;

    /// A command of the cluster `c` that asks for the VLANs 100 and 101 on some ports.
    pub(crate) fn asking(ports: &[&str]) -> FabricDesired {
        let ports: Vec<(&str, &str)> = ports.iter().map(|port| (*port, "100-101")).collect();
        fabrics::desired("c", Device::new("leaf1"), "", &ports)
    }

    /// The last four bytes of the addresses of probes found, with their VLANs and ports.
    pub(crate) fn shown(found: &Found) -> Vec<String> {
        let [a, b] = probe_mac_prefix("c");
        let prefix = format!("{a:02x}:{b:02x}:");
        let stations = found.stations.iter();
        let shown = stations.map(|Station { mac, vlan, port }| {
            format!("{} {vlan} {port}", mac.strip_prefix(&prefix).expect("a probe's address"))
        });
        shown.collect()
    }

    /// The address of a probe of the cluster `c` with these last bytes.
    pub(crate) fn probe(last: &str) -> String {
        let [a, b] = probe_mac_prefix("c");
        format!("{a:02x}:{b:02x}:{last}")
    }

    fn entry(mac_text: &str, vlan: u16, interface: &str) -> Entry {
        let vlan = VlanId::new(vlan).ok();
        Entry { mac: mac(mac_text), vlan, interface: interface.into(), is_static: false }
    }

    #[test]
    fn addresses_are_read_however_they_are_written() {
        let bytes = Some([0x02, 0x5e, 0xab, 0xcd, 0xef, 0x01]);
        for text in
            ["02:5e:ab:cd:ef:01", "02:5E:AB:CD:EF:01", "02-5e-ab-cd-ef-01", "025e.abcd.ef01", "025EABCDEF01"]
        {
            assert_eq!(mac(text), bytes, "{text}");
        }
        for text in
            ["", "*", "02:5e:ab:cd:ef", "02:5e:ab:cd:ef:01:02", "02:5g:ab:cd:ef:01", "é2:5e:ab:cd:ef:01"]
        {
            assert_eq!(mac(text), None, "{text}");
        }
    }

    #[test]
    fn probes_on_listed_ports_are_picked() {
        let mut desired = asking(&["e1", "e1.5", "e2", "e3"]);
        for port in &mut desired.ports[2..] {
            port.lag = Some("lag1".into());
        }
        let wanted = Wanted::of(&desired);
        let mut picker = Picker::new(&wanted);
        for (last, vlan, interface) in [
            ("00:00:00:09", 101, "e1"),
            ("00:00:00:01", 100, "e1"),
            ("00:00:00:01", 100, "e1"),
            ("00:00:00:02", 100, "e1.0"),
            ("00:00:00:03", 100, "e1.5"),
            ("00:00:00:04", 100, "lag1.100"),
            // Neither a VLAN nor ports of the command.
            ("00:00:00:05", 102, "e1"),
            ("00:00:00:06", 100, "e2"),
            ("00:00:00:07", 100, "e1.x"),
            ("00:00:00:08", 100, ""),
        ] {
            picker.entry(&entry(&probe(last), vlan, interface)).unwrap();
        }
        picker.entry(&entry("00:11:22:33:44:55", 100, "e1")).unwrap();
        picker.entry(&Entry { is_static: true, ..entry(&probe("00:00:00:0a"), 100, "e1") }).unwrap();
        picker.entry(&Entry { vlan: None, ..entry(&probe("00:00:00:0b"), 100, "e1") }).unwrap();
        assert_eq!(
            shown(&picker.finish()),
            [
                "00:00:00:01 100 e1",
                "00:00:00:02 100 e1",
                "00:00:00:03 100 e1.5",
                "00:00:00:04 100 e2",
                "00:00:00:04 100 e3",
                "00:00:00:09 101 e1"
            ]
        );
    }

    #[test]
    fn stations_are_bounded_and_foreign_entries_are_not_kept() {
        let desired = asking(&["e1"]);
        let wanted = Wanted::of(&desired);
        let mut picker = Picker::new(&wanted);
        for number in 0..100_000_u32 {
            let [a, b, c, d] = number.to_be_bytes();
            let foreign = Entry { mac: Some([0, 0x11, a, b, c, d]), ..entry("", 100, "e1") };
            picker.entry(&foreign).unwrap();
        }
        assert_eq!(picker.kept.counted(), 0);
        let [first, second] = probe_mac_prefix("c");
        for number in (0..10_000_u32).rev() {
            let [a, b, c, d] = number.to_be_bytes();
            picker.entry(&Entry { mac: Some([first, second, a, b, c, d]), ..entry("", 100, "e1") }).unwrap();
        }
        assert!(picker.kept.counted() < 1 << 20, "{}", picker.kept.counted());
        let found = shown(&picker.finish());
        assert_eq!((found.len(), &*found[0]), (Lookup::MAX_STATIONS, "00:00:00:00 100 e1"));
        assert_eq!(found[4095], "00:00:0f:ff 100 e1");
    }
}
