//! Discards the changes that a dead session left in the candidate.
//!
//! Some servers keep the candidate of an ended session and deny its lock until somebody commits or discards it (RFC
//! 6241 section 8.3.5.2). The driver discards it if all its changes concern this cluster's VLANs. Otherwise it
//! belongs to its author.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use eno_schemas::VlanSet;

use crate::dialect::ParseError;
use crate::operation::Operation;
use crate::plan::{Inventory, ObservedConfig, ObservedPort, interfaces, ours};
use crate::session::{CallError, Session};
use crate::text::Text;
use crate::transaction::{Transaction, TransactionError};
use crate::xml::{Scope, Step, walk};

impl<S: Session> Transaction<'_, S> {
    /// Discards the candidate if all its changes concern this cluster's VLANs; true if it did.
    pub(super) async fn discard_stale_candidate(&self) -> Result<bool, TransactionError> {
        let interfaces = interfaces(self.desired);
        let filter = self.dialect.filter(&interfaces);
        let inventory = self.dialect.needs_inventory().then(|| self.request_inventory(&interfaces));
        let read = |filter| {
            ["running", "candidate"].map(|source| self.send(Operation::GetConfig { source, filter }))
        };
        let ([running, candidate], [all_running, all_candidate]) = (read(Some(&*filter)), read(None));
        let inventory = match inventory {
            Some(pending) => self.parse_inventory(pending.await?, &interfaces).await?,
            None => Inventory::new(),
        };
        let (running, candidate) = (running.await?, candidate.await?);
        let observed =
            [self.dialect.parse(&running, &inventory)?, self.dialect.parse(&candidate, &inventory)?];
        if !differ_in_own_vlans_only(&observed[0], &observed[1], &self.desired.cluster) {
            return Ok(false);
        }
        // The parts that the filter does not select are equal.
        let within = differences(&running, &candidate)?;
        if differences(&all_running.await?, &all_candidate.await?)? != within {
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
}

/// Whether two states differ, and only in VLANs under our names and ports that carry them.
fn differ_in_own_vlans_only(running: &ObservedConfig, candidate: &ObservedConfig, cluster: &str) -> bool {
    let ours = ours(running, cluster).union(&ours(candidate, cluster));
    let vlans = || {
        let others = |observed: &ObservedConfig| {
            let vlans = observed.vlans.iter().filter(|(vid, _)| !ours.contains(**vid));
            vlans.map(|(vid, vlan)| (*vid, vlan.clone())).collect::<Vec<_>>()
        };
        others(running) == others(candidate)
    };
    let ports = || {
        let names = running.ports.keys().chain(candidate.ports.keys());
        let unknown = ObservedPort::default();
        names.into_iter().all(|name| {
            let [before, after] =
                [running, candidate].map(|observed| observed.ports.get(name).unwrap_or(&unknown));
            before == after || port_differs_in_own_vlans_only(before, after, &ours)
        })
    };
    (running.vlans != candidate.vlans || running.ports != candidate.ports) && vlans() && ports()
}

/// Whether a port differs only in the VLANs `ours`, with the consequences for its mode.
fn port_differs_in_own_vlans_only(before: &ObservedPort, after: &ObservedPort, ours: &VlanSet) -> bool {
    let (old, new) = (before.tagged(), after.tagged());
    let changed = old.difference(&new).union(&new.difference(&old));
    // The native VLAN is listed while the list is otherwise empty.
    let native: VlanSet = before.native.into_iter().collect();
    !changed.is_empty()
        && changed.difference(&native).is_subset(ours)
        && before.native == after.native
        && before.aggregate == after.aggregate
        && before.unfit == after.unfit
}

/// The elements that only one of two replies has, each as the hash of its path and content, sorted. The path of a
/// list entry includes its first leaf, which is its key (RFC 7950 section 7.8.5).
fn differences(one: &Text, other: &Text) -> Result<Vec<u64>, ParseError> {
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

fn elements(reply: &Text) -> Result<Vec<u64>, ParseError> {
    let mut elements = Vec::new();
    // The path with keys of each open element, and whether it has a child yet.
    let mut open: Vec<(String, bool)> = Vec::new();
    walk(
        reply,
        |_| Scope::Known,
        |step| match step {
            Step::Enter(path) => {
                let name = path.rsplit('/').next().unwrap_or(path);
                let within = open.last().map_or("", |(path, _)| path);
                open.push((format!("{within}/{name}"), false));
            }
            Step::Leave(path, text) => {
                let Some((own, has_children)) = open.pop() else { return };
                if let Some((within, has_siblings)) = open.last_mut()
                    && !std::mem::replace(has_siblings, true)
                    && !has_children
                {
                    let name = path.rsplit('/').next().unwrap_or(path);
                    let _ = write!(within, "[{name}={text:?}]");
                }
                let mut hasher = DefaultHasher::new();
                (own, text).hash(&mut hasher);
                elements.push(hasher.finish());
            }
        },
    )?;
    elements.sort_unstable();
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_entries_are_identified_by_key() {
        let config = |entries: &[(&str, &str)]| {
            let entry =
                |(name, mtu): &(&str, &str)| format!("<if><name>{name}</name><x><mtu>{mtu}</mtu></x></if>");
            Text::from(format!("<data>{}</data>", entries.iter().map(entry).collect::<String>()))
        };
        let differ = |one: &[_], other: &[_]| differences(&config(one), &config(other)).unwrap();
        assert_eq!(differ(&[("a", "1"), ("b", "2")], &[("b", "2"), ("a", "1")]), Vec::<u64>::new());
        assert_eq!(
            differ(&[("a", "1"), ("b", "2")], &[("a", "2"), ("b", "1")]).len(),
            8,
            "a value that moves from one entry to another is a difference"
        );
    }
}
