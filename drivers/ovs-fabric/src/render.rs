//! Renders a plan as the operations of one transaction.

use eno_ovsdb::{Condition, Mutation, Operation, Row, Until, Uuid, Value, row};
use eno_schemas::{FabricDesired, VlanId};

use crate::plan::{ModeChange, Plan, PortChange};
use crate::record::{AccessMode, uids_after, uids_key};
use crate::view::{Port, View};

/// Operations, each with the row of its port, if it is about one.
pub type Operations = Vec<(Option<Uuid>, Operation)>;

/// The operations of a plan. They fail if the plan's assumptions are outdated: each change waits for the
/// port's [state](guard), and each claimed VLAN for being unused by others. Foreign list entries that were
/// added meanwhile stay.
pub fn operations(plan: &Plan, view: &View, desired: &FabricDesired) -> Operations {
    let mut operations: Operations =
        users(plan, view).into_iter().map(|operation| (None, operation)).collect();
    for (uuid, change) in &plan.changes {
        if let Some(port) = view.ports.get(uuid) {
            operations.extend(
                change_port(*uuid, port, change, desired)
                    .into_iter()
                    .map(|operation| (Some(*uuid), operation)),
            );
        }
    }
    operations
}

/// Waits for the observed tag and mode of a port, and for its list. Of a list that keeps an entry, that entry is
/// enough: the list is then empty neither before the change nor after it, so no trunk is opened or closed.
fn guard(uuid: Uuid, port: &Port, change: &PortChange) -> Operation {
    let mut seen =
        row([("tag", Value::from(port.tag)), ("vlan_mode", Value::from(port.vlan_mode.as_deref()))]);
    let mut conditions = vec![Condition::uuid(uuid)];
    let keeps_mode = change.mode == ModeChange::Keep;
    match port.trunks.first_in(&change.trunks).filter(|_| keeps_mode) {
        Some(stays) => conditions.push(Condition::includes("trunks", stays)),
        None => drop(seen.insert("trunks".into(), Value::set(port.trunks.iter()))),
    }
    Operation::Wait {
        table: "Port".into(),
        conditions,
        columns: seen.keys().cloned().collect(),
        until: Until::Equal,
        rows: vec![seen],
        timeout: Some(0),
    }
}

fn change_port(uuid: Uuid, port: &Port, change: &PortChange, desired: &FabricDesired) -> Vec<Operation> {
    let mut mutations = Vec::new();
    let removed = port.trunks.difference(&change.trunks);
    let added = change.trunks.difference(&port.trunks);
    if !removed.is_empty() {
        mutations.push(Mutation::delete("trunks", Value::set(removed.iter())));
    }
    if !added.is_empty() {
        mutations.push(Mutation::insert("trunks", Value::set(added.iter())));
    }
    let cluster = &desired.cluster;
    let uids = desired.cluster_uid.as_deref().map(|uid| {
        let has_vlans = !change.record.vlans.is_empty();
        (uids_key(cluster), uids_after(&port.external_ids, cluster, uid, has_vlans))
    });
    for (key, value) in change.record.entries(cluster).into_iter().chain(uids) {
        let there = port.external_ids.get(&key);
        if there == value.as_ref() {
            continue;
        }
        if there.is_some() {
            mutations.push(Mutation::delete("external_ids", Value::set([key.as_str()])));
        }
        if let Some(value) = value {
            mutations.push(Mutation::insert("external_ids", Value::map([(key, value)])));
        }
    }
    let mut operations = vec![guard(uuid, port, change)];
    let mode = match change.mode {
        ModeChange::Keep => None,
        ModeChange::Trunk => Some(Value::from("trunk")),
        ModeChange::Restore(AccessMode::Named) => Some(Value::from("access")),
        ModeChange::Restore(AccessMode::Implied) => Some(Value::empty()),
    };
    if let Some(mode) = mode {
        operations.push(Operation::update("Port", [Condition::uuid(uuid)], row([("vlan_mode", mode)])));
    }
    operations.push(Operation::mutate("Port", [Condition::uuid(uuid)], mutations));
    operations
}

/// Waits for the set of ports with a VLAN to be the observed one.
fn users(plan: &Plan, view: &View) -> Vec<Operation> {
    if plan.claimed.is_empty() {
        return Vec::new();
    }
    let name = |port: &Port| -> Row { row([("name", Value::from(port.name.as_str()))]) };
    let wait = |condition: Condition, is_user: &dyn Fn(&&Port) -> bool| Operation::Wait {
        table: "Port".into(),
        conditions: vec![condition],
        columns: vec!["name".into()],
        until: Until::Equal,
        rows: view.ports.values().filter(is_user).map(name).collect(),
        timeout: Some(0),
    };
    let each = |vlan: VlanId| {
        [
            wait(Condition::includes("trunks", vlan.get()), &|port| port.trunks.vlans().contains(vlan)),
            wait(Condition::equal("tag", vlan.get()), &|port| port.tag == Some(vlan.get())),
        ]
    };
    plan.claimed.iter().flat_map(each).collect()
}
