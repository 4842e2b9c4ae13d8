//! Trunks that must keep a list. On many devices a trunk with an emptied list carries every VLAN. It then looks like
//! a foreign trunk that never had a list. So reports name the trunks that had a list with our VLANs, and the engine
//! repeats them in the next command.

use std::borrow::Cow;
use std::collections::BTreeSet;

use eno_schemas::{Applied, Drift, FabricDesired, FabricPort, Generation, Outcome, Report};

use super::{Mode, ObservedConfig, ObservedPort, members, ours};

/// The desired state with the port memory of the last report. The report on this very command is newer than the
/// command's own memory. Any other report is older and is ignored.
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
        // A report of a version without this field.
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

/// The listed ports that must keep a list: trunks whose list has our VLANs, and trunks that had one while our VLANs
/// are desired there or the list has to be restored.
pub(super) fn closed(observed: &ObservedConfig, desired: &FabricDesired) -> BTreeSet<String> {
    let ours = ours(observed, &desired.cluster);
    let mut closed = BTreeSet::new();
    for (name, ports) in members(desired) {
        let current = observed.ports.get(name);
        let has_ours = current.is_some_and(|current| {
            let of_ours = current.tagged().intersection(&ours).difference(&current.taken_vlans());
            current.mode == Some(Mode::Trunk) && !current.open && !of_ours.is_empty()
        });
        let has_desired_vlans = ports.iter().any(|port| !port.vlans.is_empty());
        let repair = desired.device.drift == Drift::Repair;
        let emptied = current.is_some_and(|current| is_emptied(current, &ports));
        if has_ours || was_closed(&ports) && has_desired_vlans || emptied && repair {
            closed.extend(ports.iter().map(|port| port.name.clone()));
        }
    }
    closed
}

/// Whether an interface of these ports had a list with our VLANs and has none now.
pub fn is_emptied(current: &ObservedPort, ports: &[&FabricPort]) -> bool {
    current.open && !current.open_by_inheritance && current.unfit.is_none() && was_closed(ports)
}

fn was_closed(ports: &[&FabricPort]) -> bool {
    ports.iter().any(|port| port.closed)
}
