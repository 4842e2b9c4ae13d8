//! Foreign ports that serve as uplinks: ENO adds VLANs to their `trunks`, and removes only those again.

use std::collections::BTreeSet;

use eno_ovsdb::{Condition, Mutation, Operation, Uuid, Value, read_ranges, row, write_ranges};

use super::CLOSED;
use super::desired::PortSpec;
use super::plan::{Planner, set_external_id};
use super::view::{Port, View};

/// The key in `external_ids` of foreign ports that records the VLANs that the cluster added to `trunks`.
fn added_key(cluster: &str) -> String {
    format!("eno-vlans-{cluster}")
}

impl Planner<'_> {
    /// Uses a foreign port as the uplink: only the missing VLANs are added to its `trunks`.
    pub(super) fn adopt(&mut self, wanted: &PortSpec, uuid: Uuid, port: &Port) {
        let bridge = self.bridge_of_port.get(&uuid).copied().unwrap_or_default();
        let name = &port.name;
        if let Err(reason) = adoptable(self.view, wanted, port, bridge) {
            self.reject(&wanted.item, true, reason);
            return;
        }
        let vlans = wanted.trunks();
        if port.trunks.is_empty() {
            let note =
                format!("port {name} of bridge {bridge} is not ours and has no list: it carries all VLANs");
            self.plan.notes.push(note);
        }
        self.set_added_vlans(uuid, port, &vlans);
    }

    /// Sets the VLANs that ENO adds to the `trunks` of a foreign port.
    fn set_added_vlans(&mut self, uuid: Uuid, port: &Port, vlans: &BTreeSet<i64>) {
        let key = added_key(&self.desired.cluster);
        let recorded = port.external_ids.get(&key);
        let added = recorded.map(|text| parse_list(text)).unwrap_or_default();
        // A port with empty `trunks` carries all VLANs, and adding one would cut off the others. But a list that
        // someone emptied together with ENO's VLANs is filled again.
        let (mut list, mut ours) = (port.trunks.clone(), BTreeSet::new());
        let emptied = list.is_empty() && added.iter().any(|vlan| *vlan != i64::from(CLOSED));
        if !list.is_empty() || emptied {
            list.retain(|vlan| vlans.contains(vlan) || !added.contains(vlan));
            ours =
                vlans.iter().copied().filter(|vlan| added.contains(vlan) || !list.contains(vlan)).collect();
            list.extend(&ours);
            if list.is_empty() {
                list.insert(CLOSED.into());
                if !vlans.is_empty() || recorded.is_some() {
                    ours.insert(CLOSED.into());
                }
            }
        }
        // When no VLAN of ENO is left, the record is deleted.
        if vlans.is_empty() && ours.iter().all(|vlan| *vlan == i64::from(CLOSED)) {
            ours.clear();
        }
        let text = (!ours.is_empty()).then(|| write_ranges(&ours));
        if list == port.trunks && text.as_ref() == recorded {
            return;
        }
        let seen = row([("trunks", Value::set(port.trunks.iter().copied()))]);
        self.push(Operation::expect("Port", uuid, seen));
        let mut mutations = vec![
            Mutation::delete("trunks", Value::set(port.trunks.difference(&list).copied())),
            Mutation::insert("trunks", Value::set(list.difference(&port.trunks).copied())),
        ];
        match text {
            Some(text) => mutations.extend(set_external_id(&key, &text)),
            None => mutations.push(Mutation::delete("external_ids", Value::set([key]))),
        }
        self.push(Operation::mutate("Port", [Condition::uuid(uuid)], mutations));
    }

    /// Removes ENO's VLANs from foreign ports that are no uplink any more.
    pub(super) fn release(&mut self) {
        let key = added_key(&self.desired.cluster);
        for (uuid, port) in &self.view.ports {
            if port.external_ids.contains_key(&key)
                && !self.ours(&port.external_ids)
                && !self.kept.contains(uuid)
            {
                self.set_added_vlans(*uuid, port, &BTreeSet::new());
            }
        }
    }
}

/// Checks that a foreign port may serve as the uplink.
fn adoptable(view: &View, wanted: &PortSpec, port: &Port, bridge: &str) -> Result<(), String> {
    let name = &port.name;
    if bridge != wanted.bridge {
        return Err(format!("{name} is a port that somebody else made on bridge {bridge}"));
    }
    let there: BTreeSet<&str> =
        view.interfaces_of(port).map(|(_, interface)| interface.name.as_str()).collect();
    let interfaces = wanted.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    if there != interfaces {
        let there = there.into_iter().collect::<Vec<_>>().join(", ");
        return Err(format!("port {name}, which somebody else made, has other interfaces: {there}"));
    }
    let mode = port.vlan_mode.as_deref().unwrap_or(if port.tag.is_some() { "access" } else { "trunk" });
    match (mode, port.tag) {
        ("native-tagged" | "native-untagged", Some(native)) if wanted.trunks().contains(&native) => {
            Err(format!("VLAN {native} is the native one of port {name}, which somebody else made"))
        }
        ("trunk" | "native-tagged" | "native-untagged", _) => Ok(()),
        (mode, _) => Err(format!("port {name}, which somebody else made, is no trunk: its mode is {mode}")),
    }
}

/// Parses the text of [`write_ranges`]. Anything else, which someone else wrote, yields no VLANs.
fn parse_list(text: &str) -> BTreeSet<i64> {
    read_ranges(text, 0..=CLOSED).map(i64::from).collect()
}
