//! What is there beside what has to be there. Pure.

use std::collections::{BTreeMap, BTreeSet};

use eno_nbi_crds::{FINALIZER, Phase, VlanType};
use eno_simulator::View;
use serde_json::{Value, json};

use super::action_generator::FIRST_VLAN;
use super::callback_log::Living;
use super::fabric::{Carried, Fabric, Foreign};
use super::model::{Attachment, End, Ends, World, service_name};
use super::objects::{Objects, bridge_name, point_name};
use super::observed::{ObservedNad, ObservedObject, ObservedState};

/// The kinds of objects that come and go.
const KINDS: [&str; 5] =
    ["L2Service", "L2ServiceAttachment", "L2BridgeDomain", "ConnectionPoint", "NodePool"];

/// All that has to be there.
pub(super) struct Wanted<'a> {
    pub(super) world: &'a World,
    pub(super) ends: &'a Ends,
    pub(super) foreign: &'a Foreign,
    pub(super) fabric: &'a Fabric,
    pub(super) objects: &'a Objects,
    /// What stands before the ID in the name of a VLAN.
    pub(super) prefix: &'a str,
}

/// What an object has to say of itself.
#[derive(Debug, Default)]
struct Saying {
    words: Option<String>,
    granted: Option<u16>,
    points: BTreeSet<String>,
}

impl Wanted<'_> {
    /// Everything that is not as it has to be.
    pub(super) fn differences(&self, seen: &ObservedState) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut known = BTreeSet::new();
        let mut check = |name: String, phase: Phase, saying: &Saying, wrong: &mut Vec<String>| {
            match seen.objects.get(&name) {
                None => wrong.push(format!("{name} is not there")),
                Some(object) => {
                    wrong.extend(
                        differs(object, phase, saying).into_iter().map(|why| format!("{name}: {why}")),
                    );
                }
            }
            known.insert(name);
        };
        for (service, end) in &self.ends.services {
            let users = self.ends.attachments.values().filter_map(|end| end.realised.as_ref());
            let users = users.filter(|user| user.services.contains(service));
            let saying = Saying {
                words: end.words.clone(),
                granted: end.realised.as_ref().map(|realised| realised.vid),
                points: users.map(|user| point_name(user.point)).collect(),
            };
            check(format!("L2Service {}", service_name(*service)), end.phase, &saying, &mut wrong);
        }
        for (attachment, end) in &self.ends.attachments {
            let saying = Saying { words: end.words.clone(), ..Saying::default() };
            let name = self.objects.attachment_name(*attachment);
            check(format!("L2ServiceAttachment {name}"), end.phase, &saying, &mut wrong);
        }
        for point in 0..self.world.points.len() {
            for kind in ["ConnectionPoint", "NodePool"] {
                let name = format!("{kind} {}", point_name(point));
                check(name, Phase::Ready, &Saying::default(), &mut wrong);
            }
        }
        for device in &self.fabric.switches {
            let name = format!("FabricDevice {device}");
            let pending = seen.objects.get(&name).and_then(|object| object.status.pending_changes);
            if pending.unwrap_or(0) != 0 {
                wrong.push(format!("{name}: {} changes are pending", pending.unwrap_or(0)));
            }
            check(name, Phase::Ready, &Saying::default(), &mut wrong);
        }
        let left = seen.names_of(&KINDS).into_iter().filter(|name| !known.contains(*name));
        wrong.extend(left.map(|name| format!("{name} is still there")));
        self.check_nads(seen, &mut wrong);
        let carried = self.fabric.carried(self.world, self.ends, self.foreign, self.prefix);
        for (switch, carried) in &carried {
            match seen.switches.get(switch) {
                None => wrong.push(format!("switch {switch} is not there")),
                Some(view) => check_switch(switch, carried, view, &mut wrong),
            }
        }
        wrong
    }

    /// How many ports list a VLAN that was taken away by hand and is none any more.
    pub(super) fn listed_in_vain(&self, seen: &ObservedState) -> usize {
        let taken = self.foreign.taken.iter();
        let ports = taken.filter_map(|(switch, vid)| {
            let view = seen.switches.get(switch).filter(|view| !view.vlans.contains_key(vid))?;
            Some(view.ports.values().filter(|port| port.configured.contains(*vid)).count())
        });
        ports.sum()
    }

    /// What the attachments and services have told of, by uid.
    pub(super) fn living(seen: &ObservedState) -> BTreeMap<String, Living> {
        let telling = seen.objects.iter().filter(|(name, _)| {
            matches!(name.split_once(' '), Some(("L2Service" | "L2ServiceAttachment", _)))
        });
        let living = telling.map(|(name, object)| {
            let transitions = object.status.transitions.and_then(|number| u64::try_from(number).ok());
            let phase = object.status.phase.map_or("", Phase::as_str).to_owned();
            let living = Living { name: name.clone(), transitions: transitions.unwrap_or(0), phase };
            (object.uid.clone(), living)
        });
        living.collect()
    }

    fn check_nads(&self, seen: &ObservedState, wrong: &mut Vec<String>) {
        let mut known = BTreeSet::new();
        for (attachment, End { realised, .. }) in &self.ends.attachments {
            let Some(realised) = realised else { continue };
            let name = self.objects.attachment_name(*attachment);
            let owner = seen.objects.get(&format!("L2ServiceAttachment {name}")).map(|one| one.uid.clone());
            let wanted = ObservedNad {
                owners: owner.into_iter().collect(),
                config: self.nad(&format!("a{attachment}"), realised),
            };
            match seen.nads.get(&name) {
                None => wrong.push(format!("NetworkAttachmentDefinition {name} is not there")),
                Some(found) if *found != wanted => wrong.push(format!(
                    "NetworkAttachmentDefinition {name}: {:?} {} instead of {:?} {}",
                    found.owners, found.config, wanted.owners, wanted.config
                )),
                Some(_) => {}
            }
            known.insert(name);
        }
        let left = seen.nads.keys().filter(|name| !known.contains(*name));
        wrong.extend(left.map(|name| format!("NetworkAttachmentDefinition {name} is still there")));
    }

    fn nad(&self, name: &str, attachment: &Attachment) -> Value {
        let bridge = self.world.points.get(attachment.point).map_or(0, |point| point.bridge);
        let mut config =
            json!({"cniVersion": "0.3.1", "name": name, "type": "ovs", "bridge": bridge_name(bridge)});
        let services = attachment.services.iter().filter_map(|service| self.ends.services.get(service));
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

fn differs(object: &ObservedObject, phase: Phase, saying: &Saying) -> Vec<String> {
    let mut wrong = Vec::new();
    let status = &object.status;
    let message = status.message.as_deref().unwrap_or_default();
    if status.phase != Some(phase) {
        let found = status.phase.map_or("nothing", Phase::as_str);
        wrong.push(format!("it is {found} ({message}) instead of {phase}"));
        return wrong;
    }
    if !object.current {
        wrong.push("its status is not about its present spec".to_owned());
    }
    let said = saying.words.as_deref().map_or(message.is_empty(), |words| message.contains(words));
    if !said {
        wrong.push(format!(
            "it says {message:?} instead of {:?}",
            saying.words.as_deref().unwrap_or_default()
        ));
    }
    if object.finalizers != [FINALIZER] {
        wrong.push(format!("its finalizers are {:?}", object.finalizers));
    }
    if object.deleting != (phase == Phase::Terminating) {
        wrong.push(format!("its deletion was {}asked for", if object.deleting { "" } else { "not " }));
    }
    if status.granted_id != saying.granted {
        wrong.push(format!("it has VLAN {:?} instead of {:?}", status.granted_id, saying.granted));
    }
    let points: BTreeSet<String> = status.connection_points.iter().cloned().collect();
    if points != saying.points {
        wrong.push(format!("it is on {points:?} instead of {:?}", saying.points));
    }
    wrong
}

/// VLANs below those that are used here are from the factory. What a port lists of a VLAN that was taken away by hand, and
/// that is none any more, is nobody's and does nothing.
fn check_switch(name: &str, wanted: &Carried, view: &View, wrong: &mut Vec<String>) {
    let used = |vid: &u16| *vid >= FIRST_VLAN;
    let vlans = view.vlans.iter().filter(|(vid, _)| used(vid));
    let vlans: BTreeMap<u16, String> =
        vlans.map(|(vid, vlan)| (*vid, vlan.name.clone().unwrap_or_default())).collect();
    for vid in wanted.vlans.keys().chain(vlans.keys()).collect::<BTreeSet<_>>() {
        let (wanted, found) = (wanted.vlans.get(vid), vlans.get(vid));
        if wanted != found {
            wrong.push(format!("switch {name}: VLAN {vid} is called {found:?} instead of {wanted:?}"));
        }
    }
    let counts = |vid: &u16| !wanted.taken.contains(vid) || view.vlans.contains_key(vid);
    let none = BTreeSet::new();
    let ports = wanted.ports.keys().chain(view.ports.keys()).collect::<BTreeSet<_>>();
    for port in ports {
        let wanted = wanted.ports.get(port).unwrap_or(&none);
        let found = view.ports.get(port);
        let configured: BTreeSet<u16> =
            found.iter().flat_map(|port| port.configured.iter()).filter(used).filter(counts).collect();
        let carried: BTreeSet<u16> = found.iter().flat_map(|port| port.vlans.iter()).filter(used).collect();
        for (what, found) in [("lists", &configured), ("carries", &carried)] {
            if found != wanted {
                let more: Vec<_> = found.difference(wanted).collect();
                let less: Vec<_> = wanted.difference(found).collect();
                wrong.push(format!("switch {name}: port {port} {what} {more:?} too much and lacks {less:?}"));
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
    fn an_object_that_says_something_else_is_found() {
        let saying = Saying { granted: Some(100), ..Saying::default() };
        assert!(differs(&ready(), Phase::Ready, &saying).is_empty());
        let late = ObservedObject { current: false, ..ready() };
        assert_eq!(differs(&late, Phase::Ready, &saying), ["its status is not about its present spec"]);
        let words = Saying { words: Some("held by".to_owned()), ..saying };
        assert_eq!(differs(&ready(), Phase::Ready, &words), [r#"it says "" instead of "held by""#]);
        assert_eq!(differs(&ready(), Phase::Error, &words), ["it is ready () instead of error"]);
        let bare = ObservedObject { finalizers: Vec::new(), ..ready() };
        assert_eq!(differs(&bare, Phase::Ready, &Saying::default()).len(), 2);
    }

    #[test]
    fn a_switch_that_has_more_or_less_is_found() {
        let port = |vids: &[u16]| {
            let set: eno_simulator::VlanSet = vids.iter().copied().collect();
            PortView { vlans: set.clone(), configured: set, ..PortView::default() }
        };
        let named = |name: &str| VlanView { name: Some(name.to_owned()), status: "ACTIVE".to_owned() };
        let view = View {
            vlans: BTreeMap::from([(1, named("default")), (100, named("eno-x-100"))]),
            ports: BTreeMap::from([("e1".to_owned(), port(&[1, 100])), ("e2".to_owned(), port(&[]))]),
        };
        let mut wanted = Carried {
            vlans: BTreeMap::from([(100, "eno-x-100".to_owned())]),
            ports: BTreeMap::from([("e1".to_owned(), BTreeSet::from([100]))]),
            taken: BTreeSet::from([100]),
        };
        let check = |wanted: &Carried| {
            let mut wrong = Vec::new();
            check_switch("leaf1", wanted, &view, &mut wrong);
            wrong
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
    fn what_is_listed_of_a_vlan_that_was_taken_by_hand_is_nobodys() {
        let set = |vids: &[u16]| vids.iter().copied().collect::<eno_simulator::VlanSet>();
        let port = PortView { vlans: set(&[1]), configured: set(&[1, 101]), ..PortView::default() };
        let mut view = View { vlans: BTreeMap::new(), ports: BTreeMap::from([("e1".to_owned(), port)]) };
        let mut wanted = Carried::default();
        let wrong = |wanted: &Carried, view: &View| {
            let mut wrong = Vec::new();
            check_switch("leaf1", wanted, view, &mut wrong);
            wrong
        };
        assert_eq!(wrong(&wanted, &view), ["switch leaf1: port e1 lists [101] too much and lacks []"]);
        wanted.taken.insert(101);
        assert!(wrong(&wanted, &view).is_empty());
        // It is one again, of whomever.
        let named = VlanView { name: Some("others".to_owned()), status: "ACTIVE".to_owned() };
        view.vlans.insert(101, named);
        assert_eq!(wrong(&wanted, &view).len(), 2);
    }
}
