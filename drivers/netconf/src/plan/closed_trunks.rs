//! Trunks that are to stay closed. On many devices a trunk whose list another hand empties carries every VLAN, and
//! looks like one of others that never had a list. So it is remembered which trunks had one with VLANs of ours: in the
//! reports, and by the engine, which says it in the next command.

use std::borrow::Cow;
use std::collections::BTreeSet;

use eno_schemas::{Applied, Drift, FabricDesired, FabricPort, Generation, Outcome, Report};

use super::{Mode, ObservedConfig, ObservedPort, members, ours};

/// The desired state with what is remembered of its ports. A report on this very command is newer than what the
/// command says of that; any other is older.
pub fn with_reported_ports<'a>(
    desired: &'a FabricDesired,
    generation: &Generation,
    last: Option<&Report>,
) -> Cow<'a, FabricDesired> {
    let Some(Report { outcome: Outcome::Applied | Outcome::RolledBack { .. }, applied, .. }) =
        last.filter(|report| report.generation == *generation)
    else {
        return Cow::Borrowed(desired);
    };
    let Some(Applied::Fabric { ports, carried, closed, before, .. }) = applied else {
        return Cow::Borrowed(desired);
    };
    let is_closed = |port: &FabricPort| {
        if let Some(closed) = closed {
            return closed.contains(&port.name);
        }
        // Of a version that does not report it.
        let of_ours = ports.get(&port.name).is_some_and(|vlans| !vlans.is_empty());
        of_ours && carried.get(&port.name).is_some_and(|carried| !carried.open)
    };
    let same =
        |port: &FabricPort| port.closed == is_closed(port) && port.before.as_ref() == before.get(&port.name);
    if desired.ports.iter().all(same) {
        return Cow::Borrowed(desired);
    }
    let mut desired = desired.clone();
    for port in &mut desired.ports {
        port.closed = is_closed(port);
        port.before = before.get(&port.name).cloned();
    }
    Cow::Owned(desired)
}

/// The listed ports that are to stay closed: trunks with a list on which there are VLANs of ours, and those that were,
/// for as long as VLANs of ours are wanted there or they have to be closed again.
pub(super) fn closed(observed: &ObservedConfig, desired: &FabricDesired) -> BTreeSet<String> {
    let ours = ours(observed, &desired.cluster);
    let mut closed = BTreeSet::new();
    for (name, ports) in members(desired) {
        let current = observed.ports.get(name);
        let has_ours = current.is_some_and(|current| {
            let taken = current.taken.keys().copied().collect();
            let of_ours = current.tagged().intersection(&ours).difference(&taken);
            current.mode == Some(Mode::Trunk) && !current.open && !of_ours.is_empty()
        });
        let desired_vlans = ports.iter().any(|port| !port.vlans.is_empty());
        let repair = desired.device.drift == Drift::Repair;
        let emptied = current.is_some_and(|current| is_emptied(current, &ports));
        if has_ours || was_closed(&ports) && desired_vlans || emptied && repair {
            closed.extend(ports.iter().map(|port| port.name.clone()));
        }
    }
    closed
}

/// Whether an interface, which the ports share, had a list with VLANs of ours, and has none now.
pub fn is_emptied(current: &ObservedPort, ports: &[&FabricPort]) -> bool {
    current.open && !current.open_elsewhere && current.unfit.is_none() && was_closed(ports)
}

fn was_closed(ports: &[&FabricPort]) -> bool {
    ports.iter().any(|port| port.closed)
}
