//! Discards the changes that a dead session left in the candidate.
//!
//! Some servers keep the candidate of an ended session and deny its lock until somebody commits or discards it (RFC
//! 6241 section 8.3.5.2). The driver discards it if all its changes concern this cluster's VLANs. Otherwise it
//! belongs to its author.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher as _};

use eno_schemas::VlanSet;

use crate::dialect::ParseError;
use crate::memory::Counter;
use crate::operation::Operation;
use crate::plan::{Inventory, ObservedConfig, ObservedPort, interfaces, ours};
use crate::session::{Call, CallError, Session};
use crate::text::Text;
use crate::transaction::{Transaction, TransactionError};
use crate::xml::{Scope, Step, walk};

/// The compared datastores.
const DATASTORES: [&str; 2] = ["running", "candidate"];

impl<S: Session> Transaction<'_, S> {
    /// Discards the candidate if all its changes concern this cluster's VLANs; true if it did.
    pub(super) async fn discard_stale_candidate(&self) -> Result<bool, TransactionError> {
        let all = self.read_pair(&[None]).await?;
        // The dead session may have had another command, with other ports. Without the inventory some configurations
        // can't be parsed; then nothing is discarded.
        let Ok(observed) = self.parse_pair(&all, &Inventory::new()) else { return Ok(false) };
        let observed = if self.dialect.needs_inventory() {
            let interfaces_of_both =
                observed.iter().flat_map(|observed| observed.ports.keys().map(String::as_str));
            let interfaces_of_both = interfaces_of_both.chain(interfaces(self.desired)).collect();
            let inventory = self
                .parse_inventory(self.request_inventory(&interfaces_of_both).await?, &interfaces_of_both)
                .await?;
            self.parse_pair(&all, &inventory)?
        } else {
            observed
        };
        let [running, candidate] = &observed;
        if !differ_in_own_vlans_only(running, candidate, &self.desired.cluster) {
            return Ok(false);
        }
        let changed = changed_ports(running, candidate).collect();
        if !self.is_within(&changed, &differences(&all)?).await? {
            return Ok(false);
        }
        self.work.progress("discarding what a session of this cluster left in the candidate");
        match self.send(Operation::Discard).await {
            Ok(_) => Ok(true),
            // Somebody locked it meanwhile.
            Err(CallError::Refused { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the filter for these interfaces selects all these differences. The parser reads nothing else.
    async fn is_within(&self, changed: &BTreeSet<&str>, all: &[u64]) -> Result<bool, TransactionError> {
        let filter = self.dialect.filter(changed);
        if differences(&self.read_pair(&[Some(&filter)]).await?)? == all {
            return Ok(true);
        }
        // Some devices answer only the first of several names.
        let singly = changed.iter().map(|name| self.dialect.filter_interface(name));
        let Some(singly) = singly.collect::<Option<Vec<String>>>().filter(|singly| singly.len() > 1) else {
            return Ok(false);
        };
        let vlans = self.dialect.filter(&BTreeSet::new());
        let filters: Vec<Option<&str>> =
            [&vlans].into_iter().chain(&singly).map(|filter| Some(&**filter)).collect();
        let mut selected = differences(&self.read_pair(&filters).await?)?;
        // Each of several replies repeats the containers around its interface.
        selected.dedup();
        let mut all = all.to_vec();
        all.dedup();
        Ok(selected == all)
    }

    /// The concatenated replies to these filters, from each datastore.
    async fn read_pair(&self, filters: &[Option<&str>]) -> Result<[Text; 2], TransactionError> {
        let request = |source| -> Vec<Call> {
            filters.iter().map(|filter| self.send(Operation::GetConfig { source, filter: *filter })).collect()
        };
        let mut both = [Text::new(), Text::new()];
        for (reply, pending) in both.iter_mut().zip(DATASTORES.map(request)) {
            for answer in pending {
                reply.append(answer.await?);
            }
        }
        Ok(both)
    }

    fn parse_pair(&self, both: &[Text; 2], inventory: &Inventory) -> Result<[ObservedConfig; 2], ParseError> {
        let [running, candidate] = both;
        Ok([self.dialect.parse(running, inventory)?, self.dialect.parse(candidate, inventory)?])
    }
}

/// Whether two states differ, and only in VLANs under our names and ports that carry them.
fn differ_in_own_vlans_only(running: &ObservedConfig, candidate: &ObservedConfig, cluster: &str) -> bool {
    let ours = ours(running, cluster).union(&ours(candidate, cluster));
    let vlans = || {
        let others = |observed: &ObservedConfig| {
            let vlans = observed.vlans.iter().filter(|(vid, _)| !ours.contains(*vid));
            vlans.map(|(vid, vlan)| (vid, vlan.into_owned())).collect::<Vec<_>>()
        };
        others(running) == others(candidate)
    };
    let ports = || {
        let unknown = ObservedPort::default();
        changed_ports(running, candidate).all(|name| {
            let [before, after] =
                [running, candidate].map(|observed| observed.ports.get(name).unwrap_or(&unknown));
            port_differs_in_own_vlans_only(before, after, &ours)
        })
    };
    (running.vlans != candidate.vlans || running.ports != candidate.ports) && vlans() && ports()
}

/// The ports that differ.
fn changed_ports<'a>(
    running: &'a ObservedConfig,
    candidate: &'a ObservedConfig,
) -> impl Iterator<Item = &'a str> {
    let names = running.ports.keys().chain(candidate.ports.keys());
    names.filter(|name| running.ports.get(*name) != candidate.ports.get(*name)).map(String::as_str)
}

/// Whether a port differs only in the VLANs `ours`, with the consequences for its mode.
fn port_differs_in_own_vlans_only(before: &ObservedPort, after: &ObservedPort, ours: &VlanSet) -> bool {
    let (old, new) = (before.tagged(), after.tagged());
    let changed = old.difference(new).union(&new.difference(old));
    // The native VLAN is listed while the list is otherwise empty.
    let native: VlanSet = before.native.into_iter().collect();
    !changed.is_empty()
        && changed.difference(&native).is_subset(ours)
        && before.native == after.native
        && before.aggregate == after.aggregate
        && before.unfit == after.unfit
}

/// The elements that only one of two datastores has, each as the hash of its path and content, sorted. A list entry's path
/// names its first leaf, which is its key (RFC 7950 section 7.8.5).
fn differences([one, other]: &[Text; 2]) -> Result<Vec<u64>, ParseError> {
    let (one, other) = (elements(one)?, elements(other)?);
    let mut only = Vec::new();
    let (mut one, mut other) = (one.into_iter().peekable(), other.into_iter().peekable());
    loop {
        let order = match (one.peek(), other.peek()) {
            (Some(a), Some(b)) => a.cmp(b),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return Ok(only),
        };
        let (left, right) = (order.is_le().then(|| one.next()), order.is_ge().then(|| other.next()));
        if order.is_ne() {
            only.extend(left.or(right).flatten());
        }
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn elements(reply: &Text) -> Result<Vec<u64>, ParseError> {
    let (mut elements, mut kept) = (Vec::new(), Counter::default());
    // For each open element: its path with keys, and whether it has a child yet.
    let mut open: Vec<(String, bool)> = Vec::new();
    walk(
        reply,
        |_| Scope::Known,
        |step| {
            match step {
                Step::Enter(path) => {
                    let name = path.rsplit('/').next().unwrap_or(path);
                    let within = open.last().map_or("", |(path, _)| path);
                    open.push((format!("{within}/{name}"), false));
                }
                Step::Leave(path, text) => {
                    let Some((own, has_children)) = open.pop() else { return Ok(()) };
                    if let Some((within, has_siblings)) = open.last_mut()
                        && !std::mem::replace(has_siblings, true)
                        && !has_children
                    {
                        let name = path.rsplit('/').next().unwrap_or(path);
                        let _ = write!(within, "[{name}={:x}]", hash(&text));
                    }
                    // The list grows by doubling.
                    kept.bytes(2 * size_of::<u64>());
                    elements.push(hash(&(own, text)));
                }
            }
            kept.check()
        },
    )?;
    elements.sort_unstable();
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_leaves_of_entries_with_the_same_first_key_are_counted() {
        let config = |names: &[&str]| {
            let entry = |name: &&str| format!("<p><id>x</id><name>{name}</name><on>true</on></p>");
            Text::from(format!("<data>{}</data>", names.iter().map(entry).collect::<String>()))
        };
        let one_off = Text::from(config(&["a", "b"]).to_string().replacen("<on>true</on>", "", 1));
        assert_eq!(differences(&[config(&["a", "b"]), one_off]).unwrap().len(), 1);
    }

    #[test]
    fn list_entries_are_identified_by_key() {
        let config = |entries: &[(&str, &str)]| {
            let entry =
                |(name, mtu): &(&str, &str)| format!("<if><name>{name}</name><x><mtu>{mtu}</mtu></x></if>");
            Text::from(format!("<data>{}</data>", entries.iter().map(entry).collect::<String>()))
        };
        let differ = |one: &[_], other: &[_]| differences(&[config(one), config(other)]).unwrap();
        assert_eq!(differ(&[("a", "1"), ("b", "2")], &[("b", "2"), ("a", "1")]), Vec::<u64>::new());
        assert_eq!(
            differ(&[("a", "1"), ("b", "2")], &[("a", "2"), ("b", "1")]).len(),
            8,
            "a value that moves from one entry to another is a difference"
        );
    }
}
