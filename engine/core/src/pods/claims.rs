//! Exclusive names and hardware addresses of interfaces.

use std::collections::BTreeSet;

use eno_schemas::LinkName;

use crate::pods::Pods;
use crate::pods::template::{self, Interfaces};
use crate::{Key, Name};

/// An exclusive name or hardware address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    /// The name of an interface of a pod: pod uid, name.
    Name(Name, String),
    /// A hardware address on a master that pods of a node share: node, master, address.
    Mac(Name, String, String),
}

/// The holder of a claim: the object, the pod's uid and name.
pub type Claimant = (Key, Name, Name);

impl Pods {
    /// The claims of links: names in the pod, and hardware addresses beside other pods.
    pub(super) fn claims_for(
        &self,
        key: &Key,
        uid: &Name,
        Interfaces { templates, primary }: &Interfaces,
    ) -> Result<BTreeSet<Claim>, String> {
        let Some(state) = self.states.get(uid) else { return Ok(BTreeSet::new()) };
        let node = state.pod.node.clone().unwrap_or_else(|| "".into());
        let mut claims = BTreeSet::new();
        for template in templates {
            let link = &template.link;
            let name = name_claim(uid, &link.name);
            self.check_claim(key, uid, &name, |(other, _, _)| {
                let Claim::Name(_, name) = &name else { unreachable!() };
                format!("the name {name} is taken by an interface of {} {}", other.kind, other.name)
            })?;
            claims.insert(name);
            if let (Some(mac), Some(master)) = (&link.mac, template::shared_master(&link.kind)) {
                let claim = Claim::Mac(node.clone(), master.to_owned(), mac.clone());
                self.check_claim(key, uid, &claim, |(_, _, pod)| {
                    format!(
                        "link {}: the hardware address {mac} is taken by pod {pod} on {master}",
                        template.name
                    )
                })?;
                claims.insert(claim);
            }
        }
        if let Some(primary) = primary {
            let claim = Claim::Name(uid.clone(), primary.name.clone());
            self.check_claim(key, uid, &claim, |(other, _, _)| {
                format!("its interface {} is changed by {} {} already", primary.name, other.kind, other.name)
            })?;
            claims.insert(claim);
        }
        Ok(claims)
    }

    fn check_claim(
        &self,
        key: &Key,
        uid: &Name,
        claim: &Claim,
        message: impl FnOnce(&Claimant) -> String,
    ) -> Result<(), String> {
        match self.claims.get(claim) {
            Some(holder) if (&holder.0, &holder.1) != (key, uid) => Err(message(holder)),
            _ => Ok(()),
        }
    }

    pub(super) fn set_claims(&mut self, key: &Key, uid: &Name, claims: BTreeSet<Claim>) {
        let Some(entry) = self.providers.get_mut(key).and_then(|provider| provider.entries.get_mut(uid))
        else {
            return;
        };
        if !claims.is_subset(&entry.claims) {
            // Other objects of the pod may now find that a name is taken.
            let same = self.blocked.iter().filter(|(other, pod)| pod == uid && other != key);
            self.queue.extend(same.cloned());
        }
        for claim in &claims {
            self.claims.insert(claim.clone(), (key.clone(), uid.clone(), entry.name.clone()));
        }
        let before = std::mem::replace(&mut entry.claims, claims);
        let given_up: Vec<Claim> = before.difference(&entry.claims).cloned().collect();
        for claim in &given_up {
            self.claims.remove(claim);
        }
        if !given_up.is_empty() {
            self.unblock();
        }
    }

    /// Queues all pods that were blocked by a claim or lease of another.
    pub(super) fn unblock(&mut self) {
        self.queue.append(&mut self.blocked);
        self.released = true;
    }
}

/// The claim on the name of a link of a pod.
fn name_claim(uid: &Name, name: &LinkName) -> Claim {
    match name {
        LinkName::Fixed(name) => Claim::Name(uid.clone(), name.clone()),
        // A PID follows the name, so it can't be equal to a fixed one.
        LinkName::WithPid(name) => Claim::Name(uid.clone(), format!("{name}<PID>")),
    }
}
