//! Edits the target datastore without the items that the device refuses.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use eno_schemas::{VlanId, VlanSet};
use tracing::debug;

use crate::hello::{Confirmation, Target};
use crate::operation::Operation;
use crate::plan::{
    ChangeUnit, Changes, Exclusions, Inventory, ObservedConfig, Plan, plan, with_new_port_memory,
};
use crate::reply::{RpcError, RpcErrors};
use crate::session::{CallError, Session};
use crate::text::{REPLACEMENT, Text};
use crate::transaction::error_class::Class;
use crate::transaction::read::View;
use crate::transaction::{Transaction, TransactionError};

/// Maximum items that errors may name before the whole change fails.
const MAX_NAMED_ITEMS: usize = 512;
/// Maximum tries of parts of a refused change.
const MAX_TRIES: usize = 96;
/// The same for a change that does not read back, of which each refused part takes time.
const MAX_READ_BACK_TRIES: usize = 32;
/// Waits before a part that does not read back is read again.
const READ_BACK_WAITS: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(1)];

/// The operation up to which a part has to succeed to count as accepted.
#[derive(Clone, Copy)]
pub(super) enum Depth<'a> {
    /// Edit, and validation where there is one.
    Stage,
    /// Edit, validation and commit.
    Commit,
    /// The same, and the device shows it when read back.
    ReadBack(&'a View<'a>, Option<&'a Inventory>),
}

/// The reason of units that a device accepts and does not show.
pub(super) const NOT_SHOWN: &str = "the device accepted it, but does not show it when read back";

impl<S: Session> Transaction<'_, S> {
    /// Edits the target datastore. Refused units are added to `excluded` and the rest is tried again. `None`: nothing
    /// is left to change.
    pub(super) async fn stage(
        &self,
        observed: &ObservedConfig,
        excluded: &mut Exclusions,
    ) -> Result<Option<Plan>, TransactionError> {
        loop {
            let planned = plan(observed, self.desired, excluded);
            if planned.changes.is_empty() {
                return Ok(None);
            }
            let config = self.dialect.render(observed, &planned.changes);
            if config.contains(REPLACEMENT) {
                for unit in self.unwritable(observed, &planned.changes) {
                    let reason = "its configuration on the device holds text that can't be read, so that text can't be \
                                  written either";
                    excluded.add(unit, reason);
                }
                continue;
            }
            let (operation, errors) = match self.try_config(config).await {
                Ok(()) => return Ok(Some(planned)),
                Err(CallError::Refused { operation, errors }) => (operation, errors),
                Err(error) => return Err(error.into()),
            };
            self.exclude_refused(observed, &planned.changes, &operation, errors, Depth::Stage, excluded)
                .await?;
        }
    }

    /// Discards the candidate, edits it and validates it.
    pub(super) async fn try_changes(
        &self,
        observed: &ObservedConfig,
        changes: &Changes,
    ) -> Result<(), CallError> {
        self.try_config(self.dialect.render(observed, changes)).await
    }

    /// The units of `changes` that would write what was not read exactly. All of them if that can't be told.
    fn unwritable(&self, observed: &ObservedConfig, changes: &Changes) -> Vec<ChangeUnit> {
        let ports = changes.ports.iter().map(|(name, change)| {
            let ports = [(name.clone(), change.clone())].into();
            (ChangeUnit::Port(name.clone()), Changes { ports, ..Changes::default() })
        });
        let created = changes.create.iter().map(|(vid, name)| {
            let create = [(*vid, name.clone())].into();
            (ChangeUnit::Vlan(*vid), Changes { create, ..Changes::default() })
        });
        let deleted = changes.delete.iter().map(|vid| {
            let delete = [vid].into_iter().collect();
            (ChangeUnit::Vlan(vid), Changes { delete, ..Changes::default() })
        });
        let routing: Vec<ChangeUnit> = changes.routing.units().collect();
        let routed = changes.routing.clone();
        let routed = (!routing.is_empty()).then(|| Changes { routing: routed, ..Changes::default() });
        if routed.is_some_and(|alone| self.dialect.render(observed, &alone).contains(REPLACEMENT)) {
            return routing;
        }
        let (found, others): (Vec<_>, Vec<_>) = ports
            .chain(created)
            .chain(deleted)
            .partition(|(_, alone)| self.dialect.render(observed, alone).contains(REPLACEMENT));
        let units = if found.is_empty() { others } else { found };
        units.into_iter().map(|(unit, _)| unit).collect()
    }

    /// Discards the candidate, edits it with `config` and validates it.
    async fn try_config(&self, config: Text) -> Result<(), CallError> {
        let Self { profile, .. } = self;
        let edit =
            Operation::Edit { target: profile.target, rollback_on_error: profile.rollback_on_error, config };
        let discarded = (profile.target == Target::Candidate).then(|| self.send(Operation::Discard));
        let edited = self.send(edit);
        let validated =
            (profile.target == Target::Candidate && profile.validate).then(|| self.send(Operation::Validate));
        // All replies are awaited before a refusal is handled, so the next request starts in a quiet session. After a
        // lost session no reply is awaited, since each would time out.
        let mut staged = Ok(());
        for call in discarded.into_iter().chain([edited]).chain(validated) {
            match call.await {
                Err(CallError::Session(error)) => return Err(error.into()),
                reply => staged = staged.and(reply.map(drop)),
            }
        }
        staged
    }

    /// Excludes the units that the device refuses; fails when the errors are not about single units.
    pub(super) async fn exclude_refused(
        &self,
        observed: &ObservedConfig,
        changes: &Changes,
        operation: &str,
        errors: RpcErrors,
        depth: Depth<'_>,
        excluded: &mut Exclusions,
    ) -> Result<(), TransactionError> {
        let refused = |errors: RpcErrors| {
            let retryable = errors.are_retryable();
            TransactionError::Refused { operation: operation.to_owned(), errors, retryable }
        };
        if errors.any(Class::Denied) || errors.any(Class::Locked) {
            return Err(refused(errors));
        }
        if operation == "<commit>" && errors.0.iter().any(concerns_confirmation) {
            return Err(TransactionError::ConfirmTimeoutRefused { errors });
        }
        // Errors of requests without configuration are about the request itself.
        let of_request = errors.any(Class::Request) || errors.any(Class::Unsupported);
        if operation != "<edit-config>" && of_request {
            return Err(refused(errors));
        }
        let (mut named, mut ports) = (0, Vec::new());
        for error in &errors.0 {
            let reason = || format!("the device refuses it: {error}");
            match self.dialect.locate_error(error, observed, changes) {
                // An error at the port may concern any of its VLANs.
                Some(ChangeUnit::Port(name)) if changes.size_on(&name) > 1 => {
                    ports.extend(changes.refused_on(vec![&name]).into_iter().map(|unit| (unit, reason())));
                }
                Some(unit) => {
                    let unit = match unit {
                        ChangeUnit::Port(name) => changes.refused_alone(name),
                        other => other,
                    };
                    debug!(?unit, %error, "left out");
                    named += usize::from(excluded.add(unit, reason()));
                }
                None => {}
            }
        }
        if named > 0 {
            return if excluded.len() > MAX_NAMED_ITEMS { Err(refused(errors)) } else { Ok(()) };
        }
        // A tried part would stay committed even if the transaction aborts.
        let stays = matches!(depth, Depth::Commit) && self.profile.confirmation != Confirmation::Persistent;
        let mut found = if self.holds() && stays {
            Vec::new()
        } else {
            self.bisect(observed, changes, depth, excluded, &errors).await?
        };
        if found.is_empty() {
            found = ports;
        }
        if found.is_empty() {
            return Err(refused(errors));
        }
        for (unit, reason) in found {
            excluded.add(unit, reason);
        }
        Ok(())
    }

    /// Excludes the units that keep an accepted change from being shown. The commit of the change is cancelled.
    pub(super) async fn exclude_unshown(
        &self,
        observed: &ObservedConfig,
        changes: &Changes,
        view: &View<'_>,
        inventory: Option<&Inventory>,
        excluded: &mut Exclusions,
    ) -> Result<(), TransactionError> {
        let depth = Depth::ReadBack(view, inventory);
        let found = self.bisect(observed, changes, depth, excluded, &RpcErrors(Vec::new())).await?;
        let unknown = found.is_empty();
        for (unit, _) in found {
            excluded.add(unit, NOT_SHOWN);
        }
        // A device that shows nothing is late, or has lost its configuration.
        let nothing_shown = unknown || plan(observed, self.desired, excluded).changes.is_empty();
        if nothing_shown { Err(TransactionError::NotReadBack) } else { Ok(()) }
    }

    /// Finds the refused units by trying parts: those of VRFs if the device accepts all else, otherwise without them
    /// removals first, then new VLANs without ports, then ports, then the VLANs of each refused port. Empty: no part was
    /// accepted.
    async fn bisect(
        &self,
        observed: &ObservedConfig,
        changes: &Changes,
        depth: Depth<'_>,
        excluded: &Exclusions,
        errors: &RpcErrors,
    ) -> Result<Vec<(ChangeUnit, String)>, TransactionError> {
        self.work.progress("the device refuses the change and does not name what of it: trying parts");
        let mut budget = if matches!(depth, Depth::ReadBack(..)) { MAX_READ_BACK_TRIES } else { MAX_TRIES };
        let trials_without = |base| Trials {
            transaction: self,
            observed,
            depth,
            base,
            first_refusal: errors,
            last_refusal: Mutex::default(),
        };
        let routing: Vec<ChangeUnit> = changes.routing.units().collect();
        let trials = trials_without(excluded);
        if !routing.is_empty() && trials.accepts(routing.clone()).await? {
            let refused =
                super::bisect::refused(&routing, &mut budget, |part| trials.accepts(rest(&routing, &part)));
            // What else changes is made also if nothing of VRFs is accepted.
            let all = || if changes.switches_nothing() { Vec::new() } else { routing.clone() };
            return Ok(trials.with_reasons(refused.await?.unwrap_or_else(all)));
        }
        let mut without_routing = excluded.clone();
        for unit in routing {
            without_routing.add(unit, "");
        }
        let trials = trials_without(&without_routing);
        let removals = changes.removals();
        let creates: Vec<ChangeUnit> = changes.create.keys().copied().map(ChangeUnit::Vlan).collect();
        let additions = changes.additions();
        let all_additions: Vec<ChangeUnit> = additions.values().flatten().cloned().collect();

        let without_removals = [&*creates, &*all_additions].concat();
        if !removals.is_empty() && !trials.accepts(without_removals.clone()).await? {
            let refused = super::bisect::refused(&removals, &mut budget, |part| {
                trials.accepts([without_removals.clone(), rest(&removals, &part)].concat())
            });
            return Ok(trials.with_reasons(refused.await?.unwrap_or(removals)));
        }
        if !creates.is_empty() && !trials.accepts(all_additions.clone()).await? {
            let refused = super::bisect::refused(&creates, &mut budget, |part| {
                trials.accepts([all_additions.clone(), rest(&creates, &part)].concat())
            });
            // Removals are made also if no VLAN can be created.
            let all = || if removals.is_empty() { Vec::new() } else { creates.clone() };
            return Ok(trials.with_reasons(refused.await?.unwrap_or_else(all)));
        }
        let ports: Vec<&String> = additions.keys().copied().collect();
        let of = |ports: Vec<&String>| ports.into_iter().flat_map(|name| additions[name].clone()).collect();
        let refused =
            super::bisect::refused(&ports, &mut budget, |part| trials.accepts(of(rest(&ports, &part))));
        let refused = refused.await?.unwrap_or_else(|| ports.clone());
        if refused.len() == ports.len() && ports.len() > 1 {
            // The ports may refuse the same VLANs.
            let vids: Vec<VlanId> = changes.added_on_ports().iter().collect();
            let on_ports = |vids: Vec<VlanId>| -> Vec<ChangeUnit> {
                let vids: VlanSet = vids.into_iter().collect();
                let of_them =
                    |unit: &&ChangeUnit| matches!(unit, ChangeUnit::PortVlan(_, vid) if vids.contains(*vid));
                all_additions.iter().filter(of_them).cloned().collect()
            };
            let common = super::bisect::refused(&vids, &mut budget, |part| {
                trials.accepts(on_ports(rest(&vids, &part)))
            });
            if let Some(common) = common.await?.filter(|common| common.len() < vids.len()) {
                let suspects = on_ports(common);
                let refused = super::bisect::refused(&suspects, &mut budget, |part| {
                    trials.accepts(rest(&suspects, &part))
                });
                return Ok(trials.with_reasons(refused.await?.unwrap_or(suspects)));
            }
            return Ok(trials.with_reasons(changes.refused_on(refused)));
        }
        let mut found = Vec::new();
        for (at, name) in refused.iter().enumerate() {
            let units = &additions[*name];
            let outside = [found.clone(), of(refused[at + 1..].to_vec())].concat();
            let on_port = super::bisect::refused(units, &mut budget, |part| {
                trials.accepts([outside.clone(), rest(units, &part)].concat())
            });
            match on_port.await? {
                Some(on_port) if on_port.len() < units.len() => found.extend(on_port),
                _ => found.extend(changes.refused_on(vec![name])),
            }
        }
        Ok(trials.with_reasons(found))
    }
}

/// The members of `all` without `part`.
fn rest<T: Ord + Clone>(all: &[T], part: &[T]) -> Vec<T> {
    let part: BTreeSet<&T> = part.iter().collect();
    all.iter().filter(|member| !part.contains(member)).cloned().collect()
}

/// The device refuses a parameter of the confirmed commit.
fn concerns_confirmation(error: &RpcError) -> bool {
    let element = error.info("bad-element").map(|name| name.rsplit(':').next().unwrap_or(name));
    let named = error.message.as_deref().is_some_and(|message| message.contains("confirm-timeout"));
    named || element.is_some_and(|name| ["confirmed", "confirm-timeout", "persist"].contains(&name))
}

struct Trials<'a, 'b, S> {
    /// The transaction.
    transaction: &'a Transaction<'b, S>,
    /// The state under the locks.
    observed: &'a ObservedConfig,
    /// The operation up to which a part has to succeed.
    depth: Depth<'a>,
    /// The units that are excluded already.
    base: &'a Exclusions,
    /// The errors of the whole change.
    first_refusal: &'a RpcErrors,
    /// The errors of the last refused part.
    last_refusal: Mutex<Option<String>>,
}

impl<S: Session> Trials<'_, '_, S> {
    /// Tries the change without `others`.
    async fn accepts(&self, others: Vec<ChangeUnit>) -> Result<bool, TransactionError> {
        let transaction = self.transaction;
        let mut excluded = self.base.clone();
        for unit in others {
            excluded.add(unit, "");
        }
        let changes = plan(self.observed, transaction.desired, &excluded).changes;
        if changes.is_empty() {
            return Ok(true);
        }
        if !transaction.work.is_current() {
            // The result does not count after a newer command.
            return Ok(false);
        }
        let tried = match transaction.try_changes(self.observed, &changes).await {
            Ok(()) => match self.depth {
                Depth::Stage => Ok(()),
                Depth::Commit => self.try_commit().await,
                Depth::ReadBack(view, inventory) => {
                    let planned = plan(self.observed, transaction.desired, &excluded);
                    return self.reads_back(&planned, &excluded, view, inventory).await;
                }
            },
            refused => refused,
        };
        match tried {
            Ok(()) => Ok(true),
            Err(CallError::Refused { errors, .. }) if !errors.any(Class::Locked) => {
                *self.last_refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(errors.to_string());
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Commits, reads back, and cancels the commit.
    async fn reads_back(
        &self,
        planned: &Plan,
        excluded: &Exclusions,
        view: &View<'_>,
        inventory: Option<&Inventory>,
    ) -> Result<bool, TransactionError> {
        let transaction = self.transaction;
        let commit = transaction.commit(transaction.rollback_timeout());
        let shown = async {
            if let Some(commit) = commit {
                commit.await?;
            }
            let desired = with_new_port_memory(transaction.desired, planned);
            for wait in std::iter::once(Duration::ZERO).chain(READ_BACK_WAITS) {
                tokio::time::sleep(wait).await;
                let mut now = transaction.reread(view, &mut inventory.cloned()).await?;
                now.assume_passwords_written();
                now.contested.clone_from(&self.observed.contested);
                if plan(&now, &desired, excluded).changes.is_empty() {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let shown = match shown.await {
            Err(TransactionError::Call(CallError::Refused { .. })) => Ok(false),
            shown => shown,
        };
        if !matches!(&shown, Err(error) if error.session_is_unusable()) {
            transaction.cancel_commit().await?;
        }
        shown
    }

    /// Commits and cancels the commit if possible. A commit that can't be cancelled contains only desired changes.
    async fn try_commit(&self) -> Result<(), CallError> {
        let transaction = self.transaction;
        if transaction.profile.confirmation == Confirmation::Persistent {
            let committed = match transaction.commit(transaction.rollback_timeout()) {
                Some(commit) => commit.await.map(drop),
                None => Ok(()),
            };
            if !matches!(committed, Err(CallError::Session(_))) {
                transaction.cancel_commit().await?;
            }
            committed
        } else {
            transaction.send(Operation::Commit).await.map(drop)
        }
    }

    fn with_reasons(&self, units: Vec<ChangeUnit>) -> Vec<(ChangeUnit, String)> {
        let last_refusal = self.last_refusal.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = match &*last_refusal {
            Some(last_refusal) => last_refusal.clone(),
            // The refusal passed while parts were tried.
            None if self.first_refusal.are_transient() => return Vec::new(),
            None => self.first_refusal.to_string(),
        };
        units.into_iter().map(|unit| (unit, format!("the device refuses it: {reason}"))).collect()
    }
}
