//! The MAC table of OpenConfig: the submodule openconfig-network-instance-l2, revision 2022-09-15 (openconfig/public).
//!
//! `/network-instances/network-instance[name]/fdb/mac-table/entries/entry[mac-address][vlan]`. Before revision 2018-08-11
//! the VLAN was no key, and is in `state` only.

use super::{NETWORK_INSTANCE, OpenConfig, scope};
use crate::dialect::{MacTableDialect, ParseError};
use crate::operation::Operation;
use crate::stations::{Entry, Found, Picker, Wanted, mac};
use crate::text::Text;
use crate::xml::{Step, walk};

/// The path of an entry.
const ENTRY: &str = "network-instances/network-instance/fdb/mac-table/entries/entry";

impl MacTableDialect for OpenConfig {
    fn mac_table_request(&self) -> Text {
        let filter = format!(
            "<network-instances xmlns=\"{NETWORK_INSTANCE}\"><network-instance><name/><fdb><mac-table><entries><entry>\
             <mac-address/><vlan/><state><vlan/><entry-type/></state>\
             <interface><interface-ref><state><interface/></state></interface-ref></interface>\
             </entry></entries></mac-table></fdb></network-instance></network-instances>"
        );
        Operation::Get { filter: &filter }.xml()
    }

    fn parse_mac_table(&self, reply: &Text, wanted: &Wanted<'_>) -> Result<Found, ParseError> {
        let (mut picker, mut entry) = (Picker::new(wanted), Entry::default());
        walk(reply, scope, |step| {
            match step {
                Step::Enter(ENTRY) => entry = Entry::default(),
                Step::Leave(ENTRY, _) => picker.entry(&entry)?,
                Step::Leave(path, text) => match path.strip_prefix(ENTRY) {
                    Some("/mac-address") => entry.mac = mac(text),
                    Some("/vlan" | "/state/vlan") => entry.vlan = text.parse().ok(),
                    Some("/state/entry-type") => entry.is_static = text == "STATIC",
                    Some("/interface/interface-ref/state/interface") => {
                        text.clone_into(&mut entry.interface);
                    }
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

    fn entry(last: &str, vlan: &str, state: &str, interface: &str) -> String {
        format!(
            "<entry><mac-address>{}</mac-address>{vlan}<state>{state}</state><interface><interface-ref><state>\
             <interface>{interface}</interface><subinterface>0</subinterface></state></interface-ref></interface></entry>",
            probe(last)
        )
    }

    #[test]
    fn probes_are_found_in_the_table() {
        let vlan = |id: u16| format!("<vlan>{id}</vlan>");
        let entries = [
            entry("00:00:00:01", &vlan(100), "<entry-type>DYNAMIC</entry-type>", "Ethernet1"),
            entry("00:00:00:02", "", &vlan(101), "Ethernet1"),
            entry("AB:CD:EF:03", &vlan(100), "", "Port-Channel1"),
            // Another VLAN, a configured entry, a port that is not listed, and the switch itself.
            entry("00:00:00:04", &vlan(7), "", "Ethernet1"),
            entry("00:00:00:05", &vlan(100), "<entry-type>STATIC</entry-type>", "Ethernet1"),
            entry("00:00:00:06", &vlan(100), "", "Ethernet9"),
            entry("00:00:00:07", &vlan(100), "", ""),
            entry("00:00:00:08", &vlan(5000), "", "Ethernet1"),
            entry("00:00:00:01", &vlan(100), "", "Ethernet1").replace(&probe(""), "00:11:"),
            "<entry/>".to_owned(),
        ];
        let reply = format!(
            "<rpc-reply xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><data><network-instances \
             xmlns=\"{NETWORK_INSTANCE}\"><network-instance><name>default</name><fdb><mac-table><entries>{}</entries>\
             </mac-table></fdb></network-instance></network-instances></data></rpc-reply>",
            entries.concat()
        );
        let desired = asking(&["Ethernet1", "Port-Channel1"]);
        let found = OpenConfig.parse_mac_table(&reply.as_str().into(), &Wanted::of(&desired)).unwrap();
        assert_eq!(
            shown(&found),
            ["00:00:00:01 100 Ethernet1", "00:00:00:02 101 Ethernet1", "ab:cd:ef:03 100 Port-Channel1"]
        );
        let empty = OpenConfig.parse_mac_table(&"<rpc-reply/>".into(), &Wanted::of(&desired)).unwrap();
        assert_eq!(shown(&empty), [""; 0]);
        assert!(OpenConfig.parse_mac_table(&"<rpc-reply>".into(), &Wanted::of(&desired)).is_err());
    }
}
