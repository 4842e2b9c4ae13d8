//! The MAC table of SR Linux: srl_nokia-bridge-table-mac-table, revisions 2024-10-31 and 2025-10-31
//! (nokia/srlinux-yang-models).
//!
//! `/network-instance[name]/bridge-table/mac-table/mac[address]`. The name of the network-instance tells the VLAN, and
//! `destination` is a subinterface such as `ethernet-1/1.100`.

use super::{NETWORK_INSTANCE, SrLinux, scope};
use crate::dialect::{MacTableDialect, ParseError};
use crate::operation::Operation;
use crate::stations::{Entry, Found, Picker, Wanted, mac};
use crate::text::Text;
use crate::xml::{Step, walk};

/// The module that adds the table to `bridge-table`.
const MAC_TABLE: &str = "urn:nokia.com:srlinux:l2-mac:bridge-table-mac-table";
/// The path of an entry.
const ENTRY: &str = "network-instance/bridge-table/mac-table/mac";

impl MacTableDialect for SrLinux {
    fn mac_table_request(&self) -> Text {
        let filter = format!(
            "<network-instance xmlns=\"{NETWORK_INSTANCE}\"><name/><bridge-table><mac-table xmlns=\"{MAC_TABLE}\"><mac>\
             <address/><type/><destination/></mac></mac-table></bridge-table></network-instance>"
        );
        Operation::Get { filter: &filter }.xml()
    }

    fn parse_mac_table(&self, reply: &Text, wanted: &Wanted<'_>) -> Result<Found, ParseError> {
        let (mut picker, mut vlan, mut entry) = (Picker::new(wanted), None, Entry::default());
        walk(reply, scope, |step| {
            match step {
                Step::Enter("network-instance") => vlan = None,
                Step::Leave("network-instance/name", name) => vlan = wanted.vlan_named(name),
                Step::Enter(ENTRY) => entry = Entry { vlan, ..Entry::default() },
                Step::Leave(ENTRY, _) => picker.entry(&entry)?,
                Step::Leave(path, text) => match path.strip_prefix(ENTRY) {
                    Some("/address") => entry.mac = mac(text),
                    Some("/type") => entry.is_static = matches!(text, "static" | "evpn-static"),
                    Some("/destination") => text.clone_into(&mut entry.interface),
                    _ => {}
                },
                Step::Enter(_) => {}
            }
            Ok(())
        })?;
        Ok(picker.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stations::tests::{asking, probe, shown};

    fn entry(last: &str, kind: &str, destination: &str) -> String {
        format!(
            "<mac><address>{}</address><destination-type>sub-interface</destination-type><type>{kind}</type>\
             <destination>{destination}</destination></mac>",
            probe(last)
        )
    }

    fn instance(name: &str, entries: &[String]) -> String {
        format!(
            "<network-instance xmlns=\"{NETWORK_INSTANCE}\"><name>{name}</name><bridge-table><mac-table \
             xmlns=\"{MAC_TABLE}\">{}</mac-table></bridge-table></network-instance>",
            entries.concat()
        )
    }

    #[test]
    fn probes_are_found_in_the_tables_of_our_instances() {
        let port = "ethernet-1/1.100";
        let reply = [
            instance(
                "eno-c-100",
                &[
                    entry("00:00:00:01", "learnt", port),
                    entry("AB:00:00:02", "learnt", "lag1.7"),
                    entry("00:00:00:03", "static", port),
                    entry("00:00:00:04", "evpn", "vxlan-interface:vxlan1.1 vtep:192.0.2.1 vni:5"),
                    entry("00:00:00:05", "learnt", "ethernet-1/9.100"),
                    entry("00:00:00:01", "learnt", port).replace(&probe(""), "00:11:"),
                ],
            ),
            instance("eno-c-101", &[entry("00:00:00:01", "learnt", "ethernet-1/1.101")]),
            // Others' instances, and a VLAN that is not desired.
            instance("eno-d-100", &[entry("00:00:00:06", "learnt", port)]),
            instance("blue", &[entry("00:00:00:07", "learnt", port)]),
            instance("eno-c-7", &[entry("00:00:00:08", "learnt", port)]),
        ];
        let reply = format!(
            "<rpc-reply xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><data>{}</data></rpc-reply>",
            reply.concat()
        );
        let desired = asking(&["ethernet-1/1", "lag1"]);
        let found = SrLinux.parse_mac_table(&reply.as_str().into(), &Wanted::of(&desired)).unwrap();
        assert_eq!(
            shown(&found),
            ["00:00:00:01 100 ethernet-1/1", "00:00:00:01 101 ethernet-1/1", "ab:00:00:02 100 lag1"]
        );
    }
}
