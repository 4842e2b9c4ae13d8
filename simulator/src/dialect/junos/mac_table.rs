//! The reply to `<get-ethernet-switching-table-information>`, as switches with enhanced layer-2 software write it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::dialect::View;
use crate::dialect::accessors::xml_escaped;
use crate::mac_table::Learnt;

/// The name of the operation.
pub(super) const OPERATION: &str = "get-ethernet-switching-table-information";

/// Writes the table, by VLANs that are defined.
pub(super) fn write(view: &View, learnt: &[Learnt]) -> String {
    let mut vlans: BTreeMap<u16, Vec<&Learnt>> = BTreeMap::new();
    for entry in learnt {
        vlans.entry(entry.vlan).or_default().push(entry);
    }
    let mut out =
        String::from("<l2ng-l2ald-rtb-macdb xmlns=\"http://xml.juniper.net/junos/23.4R1/junos-l2al\">");
    // Writing to a String can't fail; hence the discarded results.
    for (id, learnt) in vlans {
        let Some(vlan) = view.vlans.get(&id) else { continue };
        let (name, number) = (xml_escaped(vlan.name.as_deref().unwrap_or_default()), learnt.len());
        let _ = write!(
            out,
            "<l2ng-l2ald-mac-entry-vlan><mac-count-global>{number}</mac-count-global>\
             <learnt-mac-count>{number}</learnt-mac-count>\
             <l2ng-l2-mac-routing-instance>default-switch</l2ng-l2-mac-routing-instance>\
             <l2ng-l2-vlan-id>{id}</l2ng-l2-vlan-id>"
        );
        for Learnt { mac, port, .. } in learnt {
            let _ = write!(
                out,
                "<l2ng-mac-entry><l2ng-l2-mac-vlan-name>{name}</l2ng-l2-mac-vlan-name>\
                 <l2ng-l2-mac-address>{}</l2ng-l2-mac-address><l2ng-l2-mac-flags>D</l2ng-l2-mac-flags>\
                 <l2ng-l2-mac-age>-</l2ng-l2-mac-age>\
                 <l2ng-l2-mac-logical-interface>{}.0</l2ng-l2-mac-logical-interface></l2ng-mac-entry>",
                xml_escaped(mac),
                xml_escaped(port)
            );
        }
        out.push_str("</l2ng-l2ald-mac-entry-vlan>");
    }
    out + "</l2ng-l2ald-rtb-macdb>"
}
