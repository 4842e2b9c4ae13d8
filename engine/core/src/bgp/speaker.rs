//! What BGP speakers in the cluster know of groups: one target for each group with a speaker.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_schemas::{Bfd, Desired, Note, Report, SpeakerDesired, SpeakerSessions};

use super::plan::Wanted;
use super::{Groups, interface_name};
use crate::status::hop::HopState;
use crate::status::whole::WholeTarget;
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name, Target};

/// The driver that configures BGP speakers.
pub(crate) const SPEAKER_DRIVER: &str = "bgp-speaker";
/// The label by which MetalLB selects nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Maximum bytes of the name of an object.
const MAX_NAME_LENGTH: usize = 253;

/// What speakers know of one group.
#[derive(Debug)]
pub(super) struct SpeakerTarget {
    desired: Desired,
    whole: WholeTarget,
}

/// The name of a speaker's object for a gateway of a group, such as `eno-pool-a-10-9-0-254`.
fn peer_name(group: &str, gateway: IpAddr) -> String {
    let address = match gateway {
        IpAddr::V4(address) => address.octets().map(|octet| octet.to_string()).join("-"),
        IpAddr::V6(address) => address.segments().map(|segment| format!("{segment:x}")).join("-"),
    };
    let name = format!("eno-{group}-{address}");
    if name.len() <= MAX_NAME_LENGTH { name } else { format!("{}-{address}", interface_name(group)) }
}

impl Wanted<'_> {
    /// The sessions as these nodes see them. `None`: the group has no speaker, or no nodes.
    pub(super) fn speaker_sessions<'a>(
        &self,
        store: &Store,
        group: &str,
        nodes: impl Iterator<Item = &'a Name>,
    ) -> Option<SpeakerSessions> {
        let spec = self.spec;
        let hostname = |node: &Name| {
            let label = store.node_labels(node).and_then(|labels| labels.get(HOSTNAME));
            label.map_or_else(|| node.to_string(), ToString::to_string)
        };
        let hostnames: BTreeSet<String> = nodes.map(hostname).collect();
        if hostnames.is_empty() {
            return None;
        }
        Some(SpeakerSessions {
            speaker: spec.speaker?,
            hostnames,
            local_as: spec.local_asn,
            peer_as: spec.peer_asn,
            peers: self.peers(group),
            hold_time: spec.hold_time,
            keepalive_time: spec.keepalive_time,
            // A node takes what the device sends, and the reverse.
            bfd: spec.bfd.map(|device| Bfd {
                receive_interval: device.transmit_interval,
                transmit_interval: device.receive_interval,
                ..device
            }),
            graceful_restart: spec.graceful_restart.is_some(),
            password: spec.speaker_secret.as_ref().map(ToString::to_string),
        })
    }

    fn peers(&self, group: &str) -> BTreeMap<String, IpAddr> {
        let all = self.gateways.values().flatten();
        all.map(|gateway| (peer_name(group, *gateway), *gateway)).collect()
    }
}

impl Groups {
    /// Sets what speakers are to know of a group; `None`: nothing.
    pub(super) fn want_speaker(
        &mut self,
        store: &Store,
        key: &Key,
        sessions: Option<SpeakerSessions>,
        work: &mut Work,
    ) {
        let target = self.speakers.get(&key.name);
        if sessions.is_none() && target.is_none() {
            return;
        }
        let uid = match (store.get(key), target.map(|target| &target.desired)) {
            (Some(record), _) => record.uid.to_string(),
            (None, Some(Desired::Speaker(former))) => former.uid.clone(),
            (None, _) => return,
        };
        let is_wanted = sessions.is_some();
        let desired = Desired::Speaker(SpeakerDesired { name: key.name.to_string(), uid, sessions });
        let target = self
            .speakers
            .entry(key.name.clone())
            .or_insert_with(|| SpeakerTarget { desired: desired.clone(), whole: WholeTarget::default() });
        let is_new = target.whole.want(&desired);
        target.desired = desired;
        if !is_wanted && target.whole.hop() == HopState::Confirmed {
            self.speakers.remove(&key.name);
            work.forget.push(Target::Speaker(key.name.clone()));
        } else if is_new {
            work.publish.insert(Target::Speaker(key.name.clone()));
        }
    }

    /// Restores the command of a former leader. What is not planned is to go.
    pub(crate) fn restore_speaker(&mut self, store: &Store, desired: SpeakerDesired, work: &mut Work) {
        let key = Key::cluster(Kind::BGPSessionGroup, &Name::from(desired.name.as_str()));
        if self.speakers.contains_key(&key.name) {
            return;
        }
        let target = SpeakerTarget { desired: Desired::Speaker(desired), whole: WholeTarget::default() };
        self.speakers.insert(key.name.clone(), target);
        self.want_speaker(store, &key, None, work);
        self.queue.insert(key);
    }

    /// Processes a report of the driver.
    pub(crate) fn speaker_reported(&mut self, name: &Name, report: Report, work: &mut Work) {
        let Some(target) = self.speakers.get_mut(name) else { return };
        target.whole.report(report);
        let key = Key::cluster(Kind::BGPSessionGroup, name);
        let is_gone = matches!(&target.desired, Desired::Speaker(SpeakerDesired { sessions: None, .. }))
            && target.whole.hop() == HopState::Confirmed;
        if is_gone {
            self.speakers.remove(name);
            work.forget.push(Target::Speaker(name.clone()));
        }
        work.evaluate.insert(key);
    }

    /// The driver appeared or disappeared, which the statuses of groups tell.
    pub(crate) fn reevaluate_speakers(&self, work: &mut Work) {
        let keys = self.speakers.keys().map(|name| Key::cluster(Kind::BGPSessionGroup, name));
        work.evaluate.extend(keys);
    }

    /// The desired state of a target. `None`: there is no such target.
    pub(crate) fn speaker_desired(&self, name: &str) -> Option<&Desired> {
        Some(&self.speakers.get(name)?.desired)
    }

    fn speaker(&self, key: &Key) -> Option<&SpeakerTarget> {
        self.speakers.get(&key.name).filter(|_| key.kind == Kind::BGPSessionGroup)
    }

    /// The state of what speakers know of a group. `None`: they are to know nothing, and do.
    pub(crate) fn speaker_hop(&self, key: &Key) -> Option<HopState<'_>> {
        Some(self.speaker(key)?.whole.hop())
    }

    /// What the driver says of a group.
    pub(crate) fn speaker_notes(&self, key: &Key) -> impl Iterator<Item = &Note> {
        self.speaker(key).into_iter().flat_map(|target| target.whole.notes())
    }

    /// The names of the speaker's objects for the gateways of a group, for its status.
    pub(crate) fn speaker_peers(&self, key: &Key) -> Vec<String> {
        let desired = self.speaker(key).and_then(|target| match &target.desired {
            Desired::Speaker(desired) => desired.sessions.as_ref(),
            _ => None,
        });
        desired.into_iter().flat_map(|sessions| sessions.peers.keys().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_peers_are_names_of_objects() {
        for (gateway, name) in [
            ("10.9.0.254", "eno-pool-10-9-0-254"),
            ("2001:db8::fe", "eno-pool-2001-db8-0-0-0-0-0-fe"),
            ("fd00::", "eno-pool-fd00-0-0-0-0-0-0-0"),
        ] {
            assert_eq!(peer_name("pool", gateway.parse().expect("an address")), name);
        }
    }
}
