//! Ports of others that are our uplink: VLANs are added to their list, and only these are taken out again.

use std::collections::BTreeSet;

use eno_ovsdb::{Condition, Mutation, Operation, Uuid, Value, read_ranges, row, write_ranges};

use super::CLOSED;
use super::desired::PortSpec;
use super::plan::{Planner, set_external_id};
use super::view::{Port, View};

/// `external_ids` of ports of others: the VLANs that our cluster added to their list.
fn added_key(cluster: &str) -> String {
    format!("eno-vlans-{cluster}")
}

impl Planner<'_> {
    /// Uses a port of somebody else as the uplink: only its `trunks` get what is missing.
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

    /// Brings what we added to the list of a port of others to these VLANs.
    fn set_added_vlans(&mut self, uuid: Uuid, port: &Port, vlans: &BTreeSet<i64>) {
        let key = added_key(&self.desired.cluster);
        let recorded = port.external_ids.get(&key);
        let added = recorded.map(|text| parse_list(text)).unwrap_or_default();
        // Without a list it carries all, and one VLAN in it would take the others away. It has one again where somebody
        // emptied that with what we added.
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
        // Once nothing of ours is left there, not even the list's end, nothing says that we were there.
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

    /// Gives back the ports of others that are no uplink any more.
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

/// May a port of somebody else be the uplink?
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

/// Reads what [`write_ranges`] wrote; what somebody else wrote there is nothing of ours.
fn parse_list(text: &str) -> BTreeSet<i64> {
    read_ranges(text, 0..=CLOSED).map(i64::from).collect()
}
