//! The MAC table of Junos: the reply to `<get-ethernet-switching-table-information>`, as `show ethernet-switching table |
//! display xml` shows it. No YANG module of the test data has it.
//!
//! With enhanced layer-2 software the reply is `l2ng-l2ald-rtb-macdb` with one `l2ng-l2ald-mac-entry-vlan` for each VLAN and
//! a `l2ng-mac-entry` for each address. In the style `extensive` each address has a `l2ng-l2ald-mac-entry-vlan` of its own.
//! Older switches answer `mac-table-entry`. Namespaces and elements around these differ by version and model.

use eno_schemas::VlanId;

use super::Junos;
use crate::dialect::{MacTableDialect, ParseError};
use crate::stations::{Entry, Found, Picker, Wanted, mac};
use crate::text::Text;
use crate::xml::{Scope, Step, walk};

/// The entries of a VLAN, or an entry of the style `extensive`.
const OF_VLAN: &str = "l2ng-l2ald-mac-entry-vlan";

impl MacTableDialect for Junos {
    fn mac_table_request(&self) -> Text {
        "<get-ethernet-switching-table-information/>".into()
    }

    fn parse_mac_table(&self, reply: &Text, wanted: &Wanted<'_>) -> Result<Found, ParseError> {
        let (mut picker, mut reader) = (Picker::new(wanted), Reader::default());
        walk(
            reply,
            |_| Scope::Known,
            |step| {
                match step {
                    Step::Enter(path) => reader.enter(name(path)),
                    Step::Leave(path, text) => {
                        if let Some(entry) = reader.leave(wanted, name(path), text) {
                            picker.entry(&entry)?;
                        }
                    }
                }
                Ok(())
            },
        )?;
        Ok(picker.finish())
    }
}

/// The last name of a path.
fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What was read of the current VLAN and entry.
#[derive(Default)]
struct Reader {
    /// The VLAN that the entries are of, where they don't name one of ours.
    vlan: Option<VlanId>,
    entry: Entry,
}

impl Reader {
    fn enter(&mut self, element: &str) {
        match element {
            OF_VLAN => *self = Self::default(),
            "l2ng-mac-entry" | "mac-table-entry" => self.entry = Entry::default(),
            _ => {}
        }
    }

    /// Reads a leaf, or ends an entry and returns it.
    fn leave(&mut self, wanted: &Wanted<'_>, element: &str, text: &str) -> Option<Entry> {
        let entry = &mut self.entry;
        match element {
            OF_VLAN | "l2ng-mac-entry" | "mac-table-entry" => {
                let entry = std::mem::take(entry);
                return Some(Entry { vlan: entry.vlan.or(self.vlan), ..entry });
            }
            "l2ng-l2-vlan-id" => self.vlan = text.parse().ok(),
            "l2ng-l2-mac-vlan-name" | "mac-vlan" => entry.vlan = wanted.vlan_named(text),
            "l2ng-l2-mac-address" | "mac-address" => entry.mac = mac(text),
            "l2ng-l2-mac-logical-interface" | "mac-interfaces" => text.clone_into(&mut entry.interface),
            // `S`: static, `P`: persistent static.
            "l2ng-l2-mac-flags" => entry.is_static = text.split(',').any(|flag| matches!(flag, "S" | "P")),
            "mac-type" => entry.is_static = text == "Static",
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::junos::PLAIN;
    use crate::stations::tests::{asking, probe, shown};

    fn reply(content: &str) -> String {
        format!(
            "<rpc-reply xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\" \
             xmlns:junos=\"http://xml.juniper.net/junos/18.2R1/junos\" message-id=\"4\">{content}</rpc-reply>"
        )
    }

    fn found(content: &str) -> Vec<String> {
        let desired = asking(&["xe-0/0/1", "ae0"]);
        shown(&PLAIN.parse_mac_table(&reply(content).as_str().into(), &Wanted::of(&desired)).unwrap())
    }

    fn entry(last: &str, vlan: &str, flags: &str, interface: &str) -> String {
        format!(
            "<l2ng-mac-entry><l2ng-l2-mac-vlan-name>{vlan}</l2ng-l2-mac-vlan-name><l2ng-l2-mac-address>{}\
             </l2ng-l2-mac-address><l2ng-l2-mac-flags>{flags}</l2ng-l2-mac-flags><l2ng-l2-mac-age>-</l2ng-l2-mac-age>\
             <l2ng-l2-mac-logical-interface>{interface}</l2ng-l2-mac-logical-interface><l2ng-l2-mac-fwd-next-hop>0\
             </l2ng-l2-mac-fwd-next-hop></l2ng-mac-entry>",
            probe(last)
        )
    }

    fn of_vlan(id: u16, entries: &[String]) -> String {
        format!(
            "<l2ng-l2ald-rtb-macdb><l2ng-l2ald-mac-entry-vlan junos:style=\"brief-rtb\"><mac-count-global>3\
             </mac-count-global><learnt-mac-count>3</learnt-mac-count><l2ng-l2-mac-routing-instance>default-switch\
             </l2ng-l2-mac-routing-instance><l2ng-l2-vlan-id>{id}</l2ng-l2-vlan-id>{}</l2ng-l2ald-mac-entry-vlan>\
             </l2ng-l2ald-rtb-macdb>",
            entries.concat()
        )
    }

    #[test]
    fn probes_are_found_in_each_style() {
        let brief = [
            of_vlan(
                100,
                &[
                    entry("00:00:00:01", "eno-c-100", "D", "xe-0/0/1.0"),
                    entry("00:00:00:02", "eno-c-101", "DL,SE", "ae0.0"),
                    // The name of the VLAN was not ours when it was learnt.
                    entry("00:00:00:03", "blue", "D", "xe-0/0/1.0"),
                    entry("00:00:00:04", "eno-c-100", "S", "xe-0/0/1.0"),
                    entry("00:00:00:05", "eno-c-100", "D", "xe-0/0/9.0"),
                    entry("00:00:00:06", "eno-c-100", "DR", "esi.1749"),
                    entry("00:00:00:01", "eno-c-100", "D", "xe-0/0/1.0").replace(&probe(""), "00:11:"),
                ],
            ),
            of_vlan(7, &[entry("00:00:00:07", "red", "D", "xe-0/0/1.0")]),
        ];
        let expected = ["00:00:00:01 100 xe-0/0/1", "00:00:00:02 101 ae0", "00:00:00:03 100 xe-0/0/1"];
        assert_eq!(found(&brief.concat()), expected);
        let engines = format!(
            "<multi-routing-engine-results><multi-routing-engine-item><re-name>fpc0</re-name>{}\
             </multi-routing-engine-item></multi-routing-engine-results>",
            brief.concat()
        );
        assert_eq!(found(&engines), expected);
        let extensive = format!(
            "<l2ng-l2ald-rtb-macdb xmlns=\"http://xml.juniper.net/junos/15.1X53/junos-l2al\"><l2ng-l2ald-mac-entry-vlan \
             junos:style=\"extensive\"><l2ng-l2-mac-address>{}</l2ng-l2-mac-address><l2ng-l2-vlan-id>101</l2ng-l2-vlan-id>\
             <l2ng-l2-mac-vlan-name>eno-c-101</l2ng-l2-mac-vlan-name><l2ng-l2-mac-logical-interface>ae0.0\
             </l2ng-l2-mac-logical-interface></l2ng-l2ald-mac-entry-vlan></l2ng-l2ald-rtb-macdb>",
            probe("00:00:00:08")
        );
        assert_eq!(found(&extensive), ["00:00:00:08 101 ae0"]);
        let older = format!(
            "<ethernet-switching-table-information><ethernet-switching-table><mac-table-entry><mac-vlan>eno-c-100</mac-vlan>\
             <mac-address>*</mac-address><mac-type>Flood</mac-type><mac-interfaces-list><mac-interfaces>All-members\
             </mac-interfaces></mac-interfaces-list></mac-table-entry><mac-table-entry><mac-vlan>eno-c-100</mac-vlan>\
             <mac-address>{}</mac-address><mac-type>Learn</mac-type><mac-interfaces-list><mac-interfaces>xe-0/0/1.0\
             </mac-interfaces></mac-interfaces-list></mac-table-entry></ethernet-switching-table>\
             </ethernet-switching-table-information>",
            probe("00:00:00:09")
        );
        assert_eq!(found(&older), ["00:00:00:09 100 xe-0/0/1"]);
        assert_eq!(found("<output>no table</output>"), [""; 0]);
    }
}
