//! Compares the observed state with the expected one. Pure.

use std::collections::{BTreeMap, BTreeSet};

use eno_nbi_crds::{FINALIZER, Phase, VlanType};
use eno_simulator::View;
use serde_json::{Value, json};

use super::action_generator::FIRST_VLAN;
use super::callback_log::LiveObject;
use super::fabric::{Carried, Fabric, Foreign};
use super::model::{Attachment, ExpectedObject, ExpectedObjects, World, service_name};
use super::objects::{Objects, bridge_name, point_name};
use super::observed::{ObservedNad, ObservedObject, ObservedState};

/// The kinds of objects that are created and deleted.
const KINDS: [&str; 5] =
    ["L2Service", "L2ServiceAttachment", "L2BridgeDomain", "ConnectionPoint", "NodePool"];

/// The expected state of all layers.
pub(super) struct ExpectedState<'a> {
    /// The requested objects.
    pub(super) world: &'a World,
    /// The expected state of the objects.
    pub(super) expected: &'a ExpectedObjects,
    /// Manual changes of switches.
    pub(super) foreign: &'a Foreign,
    /// The cables.
    pub(super) fabric: &'a Fabric,
    /// The names of the objects.
    pub(super) objects: &'a Objects,
    /// The prefix of VLAN names.
    pub(super) prefix: &'a str,
}

/// The expected fields of a status.
#[derive(Debug, Default)]
struct ExpectedStatus {
    message: Option<String>,
    granted: Option<u16>,
    points: BTreeSet<String>,
}

impl ExpectedState<'_> {
    /// All differences from the expected state.
    pub(super) fn differences(&self, observed: &ObservedState) -> Vec<String> {
        let mut violations = Vec::new();
        let mut known = BTreeSet::new();
        let mut check =
            |name: String, phase: Phase, expected_status: &ExpectedStatus, violations: &mut Vec<String>| {
                match observed.objects.get(&name) {
                    None => violations.push(format!("{name} is not there")),
                    Some(object) => {
                        violations.extend(
                            object_differences(object, phase, expected_status)
                                .into_iter()
                                .map(|why| format!("{name}: {why}")),
                        );
                    }
                }
                known.insert(name);
            };
        for (service, end) in &self.expected.services {
            let users = self.expected.attachments.values().filter_map(|end| end.realised.as_ref());
            let users = users.filter(|user| user.services.contains(service));
            let expected_status = ExpectedStatus {
                message: end.message.clone(),
                granted: end.realised.as_ref().map(|realised| realised.vid),
                points: users.map(|user| point_name(user.point)).collect(),
            };
            check(
                format!("L2Service {}", service_name(*service)),
                end.phase,
                &expected_status,
                &mut violations,
            );
        }
        for (attachment, end) in &self.expected.attachments {
            let expected_status =
                ExpectedStatus { message: end.message.clone(), ..ExpectedStatus::default() };
            let name = self.objects.attachment_name(*attachment);
            check(format!("L2ServiceAttachment {name}"), end.phase, &expected_status, &mut violations);
        }
        for point in 0..self.world.points.len() {
            for kind in ["ConnectionPoint", "NodePool"] {
                let name = format!("{kind} {}", point_name(point));
                check(name, Phase::Ready, &ExpectedStatus::default(), &mut violations);
            }
        }
        for device in &self.fabric.switches {
            let name = format!("FabricDevice {device}");
            let pending = observed.objects.get(&name).and_then(|object| object.status.pending_changes);
            if pending.unwrap_or(0) != 0 {
                violations.push(format!("{name}: {} changes are pending", pending.unwrap_or(0)));
            }
            check(name, Phase::Ready, &ExpectedStatus::default(), &mut violations);
        }
        let leftover = observed.names_of(&KINDS).into_iter().filter(|name| !known.contains(*name));
        violations.extend(leftover.map(|name| format!("{name} is still there")));
        self.check_nads(observed, &mut violations);
        let carried = self.fabric.carried(self.world, self.expected, self.foreign, self.prefix);
        for (switch, carried) in &carried {
            match observed.switches.get(switch) {
                None => violations.push(format!("switch {switch} is not there")),
                Some(view) => check_switch(switch, carried, view, &mut violations),
            }
        }
        violations
    }

    /// The number of ports that list a manually removed VLAN that does not exist any more.
    pub(super) fn ports_with_stale_vlan(&self, observed: &ObservedState) -> usize {
        let taken = self.foreign.taken.iter();
        let ports = taken.filter_map(|(switch, vid)| {
            let view = observed.switches.get(switch).filter(|view| !view.vlans.contains_key(vid))?;
            Some(view.ports.values().filter(|port| port.configured.contains(*vid)).count())
        });
        ports.sum()
    }

    /// The attachments and services with their last transitions, by uid.
    pub(super) fn live_objects(observed: &ObservedState) -> BTreeMap<String, LiveObject> {
        let callback_objects = observed.objects.iter().filter(|(name, _)| {
            matches!(name.split_once(' '), Some(("L2Service" | "L2ServiceAttachment", _)))
        });
        let live_objects = callback_objects.map(|(name, object)| {
            let transitions = object.status.transitions.and_then(|number| u64::try_from(number).ok());
            let phase = object.status.phase.map_or("", Phase::as_str).to_owned();
            let live_object = LiveObject { name: name.clone(), transitions: transitions.unwrap_or(0), phase };
            (object.uid.clone(), live_object)
        });
        live_objects.collect()
    }

    fn check_nads(&self, observed: &ObservedState, violations: &mut Vec<String>) {
        let mut known = BTreeSet::new();
        for (attachment, ExpectedObject { realised, .. }) in &self.expected.attachments {
            let Some(realised) = realised else { continue };
            let name = self.objects.attachment_name(*attachment);
            let owner =
                observed.objects.get(&format!("L2ServiceAttachment {name}")).map(|one| one.uid.clone());
            let wanted = ObservedNad {
                owners: owner.into_iter().collect(),
                config: self.nad(&format!("a{attachment}"), realised),
            };
            match observed.nads.get(&name) {
                None => violations.push(format!("NetworkAttachmentDefinition {name} is not there")),
                Some(found) if *found != wanted => violations.push(format!(
                    "NetworkAttachmentDefinition {name}: {:?} {} instead of {:?} {}",
                    found.owners, found.config, wanted.owners, wanted.config
                )),
                Some(_) => {}
            }
            known.insert(name);
        }
        let leftover = observed.nads.keys().filter(|name| !known.contains(*name));
        violations.extend(leftover.map(|name| format!("NetworkAttachmentDefinition {name} is still there")));
    }

    fn nad(&self, name: &str, attachment: &Attachment) -> Value {
        let bridge = self.world.points.get(attachment.point).map_or(0, |point| point.bridge);
        let mut config =
            json!({"cniVersion": "0.3.1", "name": name, "type": "ovs", "bridge": bridge_name(bridge)});
        let services = attachment.services.iter().filter_map(|service| self.expected.services.get(service));
        let vids = services.filter_map(|end| end.realised.as_ref()).map(|realised| realised.vid);
        let vids: BTreeSet<u16> = vids.collect();
        match attachment.vlans {
            VlanType::Access => config["vlan"] = json!(vids.first()),
            VlanType::SelectiveTrunk => {
                config["trunk"] = json!(vids.iter().map(|vid| json!({"id": vid})).collect::<Vec<_>>());
            }
            VlanType::Trunk => {}
        }
        config
    }
}

fn object_differences(
    object: &ObservedObject,
    phase: Phase,
    expected_status: &ExpectedStatus,
) -> Vec<String> {
    let mut violations = Vec::new();
    let status = &object.status;
    let message = status.message.as_deref().unwrap_or_default();
    if status.phase != Some(phase) {
        let found = status.phase.map_or("nothing", Phase::as_str);
        violations.push(format!("it is {found} ({message}) instead of {phase}"));
        return violations;
    }
    if !object.current {
        violations.push("its status is not about its present spec".to_owned());
    }
    let matches =
        expected_status.message.as_deref().map_or(message.is_empty(), |expected| message.contains(expected));
    if !matches {
        violations.push(format!(
            "it says {message:?} instead of {:?}",
            expected_status.message.as_deref().unwrap_or_default()
        ));
    }
    if object.finalizers != [FINALIZER] {
        violations.push(format!("its finalizers are {:?}", object.finalizers));
    }
    if object.deleting != (phase == Phase::Terminating) {
        violations.push(format!("its deletion was {}asked for", if object.deleting { "" } else { "not " }));
    }
    if status.granted_id != expected_status.granted {
        violations
            .push(format!("it has VLAN {:?} instead of {:?}", status.granted_id, expected_status.granted));
    }
    let points: BTreeSet<String> = status.connection_points.iter().cloned().collect();
    if points != expected_status.points {
        violations.push(format!("it is on {points:?} instead of {:?}", expected_status.points));
    }
    violations
}

/// Checks a switch. VLANs below [`FIRST_VLAN`] are factory defaults. A port may still list a manually removed VLAN:
/// without the VLAN, the entry has no owner and no effect.
fn check_switch(name: &str, wanted: &Carried, view: &View, violations: &mut Vec<String>) {
    let is_managed = |vid: &u16| *vid >= FIRST_VLAN;
    let vlans = view.vlans.iter().filter(|(vid, _)| is_managed(vid));
    let vlans: BTreeMap<u16, String> =
        vlans.map(|(vid, vlan)| (*vid, vlan.name.clone().unwrap_or_default())).collect();
    for vid in wanted.vlans.keys().chain(vlans.keys()).collect::<BTreeSet<_>>() {
        let (wanted, found) = (wanted.vlans.get(vid), vlans.get(vid));
        if wanted != found {
            violations.push(format!("switch {name}: VLAN {vid} is called {found:?} instead of {wanted:?}"));
        }
    }
    let is_checked = |vid: &u16| !wanted.taken.contains(vid) || view.vlans.contains_key(vid);
    let none = BTreeSet::new();
    let ports = wanted.ports.keys().chain(view.ports.keys()).collect::<BTreeSet<_>>();
    for port in ports {
        let wanted = wanted.ports.get(port).unwrap_or(&none);
        let found = view.ports.get(port);
        let configured: BTreeSet<u16> = found
            .iter()
            .flat_map(|port| port.configured.iter())
            .filter(is_managed)
            .filter(is_checked)
            .collect();
        let carried: BTreeSet<u16> =
            found.iter().flat_map(|port| port.vlans.iter()).filter(is_managed).collect();
        for (what, found) in [("lists", &configured), ("carries", &carried)] {
            if found != wanted {
                let extra: Vec<_> = found.difference(wanted).collect();
                let missing: Vec<_> = wanted.difference(found).collect();
                violations.push(format!(
                    "switch {name}: port {port} {what} {extra:?} too much and lacks {missing:?}"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use eno_nbi_crds::Status;
    use eno_simulator::{PortView, VlanView};

    use super::*;

    fn ready() -> ObservedObject {
        ObservedObject {
            uid: "u".to_owned(),
            current: true,
            finalizers: vec![FINALIZER.to_owned()],
            deleting: false,
            status: Status { phase: Some(Phase::Ready), granted_id: Some(100), ..Status::default() },
        }
    }

    #[test]
    fn object_with_unexpected_status_is_found() {
        let expected_status = ExpectedStatus { granted: Some(100), ..ExpectedStatus::default() };
        assert!(object_differences(&ready(), Phase::Ready, &expected_status).is_empty());
        let late = ObservedObject { current: false, ..ready() };
        assert_eq!(
            object_differences(&late, Phase::Ready, &expected_status),
            ["its status is not about its present spec"]
        );
        let message = ExpectedStatus { message: Some("held by".to_owned()), ..expected_status };
        assert_eq!(
            object_differences(&ready(), Phase::Ready, &message),
            [r#"it says "" instead of "held by""#]
        );
        assert_eq!(object_differences(&ready(), Phase::Error, &message), ["it is ready () instead of error"]);
        let bare = ObservedObject { finalizers: Vec::new(), ..ready() };
        assert_eq!(object_differences(&bare, Phase::Ready, &ExpectedStatus::default()).len(), 2);
    }

    #[test]
    fn switch_with_missing_or_extra_vlans_is_found() {
        let port = |vids: &[u16]| {
            let set: eno_simulator::VlanSet = vids.iter().copied().collect();
            PortView { vlans: set.clone(), configured: set, ..PortView::default() }
        };
        let named = |name: &str| VlanView { name: Some(name.to_owned()), status: "ACTIVE".to_owned() };
        let view = View {
            vlans: BTreeMap::from([(1, named("default")), (100, named("eno-x-100"))]),
            ports: BTreeMap::from([("e1".to_owned(), port(&[1, 100])), ("e2".to_owned(), port(&[]))]),
            ..View::default()
        };
        let mut wanted = Carried {
            vlans: BTreeMap::from([(100, "eno-x-100".to_owned())]),
            ports: BTreeMap::from([("e1".to_owned(), BTreeSet::from([100]))]),
            taken: BTreeSet::from([100]),
        };
        let check = |wanted: &Carried| {
            let mut violations = Vec::new();
            check_switch("leaf1", wanted, &view, &mut violations);
            violations
        };
        assert!(check(&wanted).is_empty());
        wanted.ports.insert("e2".to_owned(), BTreeSet::from([101]));
        wanted.vlans.insert(100, "others".to_owned());
        assert_eq!(
            check(&wanted),
            [
                r#"switch leaf1: VLAN 100 is called Some("eno-x-100") instead of Some("others")"#,
                "switch leaf1: port e2 lists [] too much and lacks [101]",
                "switch leaf1: port e2 carries [] too much and lacks [101]",
            ]
        );
    }

    #[test]
    fn listed_ports_of_a_manually_removed_vlan_have_no_owner() {
        let set = |vids: &[u16]| vids.iter().copied().collect::<eno_simulator::VlanSet>();
        let port = PortView { vlans: set(&[1]), configured: set(&[1, 101]), ..PortView::default() };
        let mut view = View { ports: BTreeMap::from([("e1".to_owned(), port)]), ..View::default() };
        let mut wanted = Carried::default();
        let violations = |wanted: &Carried, view: &View| {
            let mut violations = Vec::new();
            check_switch("leaf1", wanted, view, &mut violations);
            violations
        };
        assert_eq!(violations(&wanted, &view), ["switch leaf1: port e1 lists [101] too much and lacks []"]);
        wanted.taken.insert(101);
        assert!(violations(&wanted, &view).is_empty());
        // The VLAN exists again, under any owner.
        let named = VlanView { name: Some("others".to_owned()), status: "ACTIVE".to_owned() };
        view.vlans.insert(101, named);
        assert_eq!(violations(&wanted, &view).len(), 2);
    }
}
