//! Getting a change into the device, without the items that it refuses.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use eno_schemas::{VlanId, VlanSet};
use tracing::debug;

use crate::hello::{Confirmation, Target};
use crate::operation::Operation;
use crate::plan::{Changes, LeftOut, Plan, Seen, Unit, plan};
use crate::reply::RpcErrors;
use crate::session::{CallError, Session};
use crate::transaction::{Transaction, TransactionError, may_pass};

/// How many items errors may name before the whole change is given up.
const MOST_NAMED: usize = 512;
/// How many parts of a refused change may be tried.
const MOST_TRIES: usize = 96;

/// Up to where a change has to go to see whether it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Edit, and validation where there is one.
    Stage,
    /// The commit too.
    Commit,
}

impl<S: Session> Transaction<'_, S> {
    /// Puts the difference into the target datastore. What is refused is added to `left_out`, and the rest is
    /// tried. `None`: nothing is left to change.
    pub(super) async fn stage(
        &self,
        seen: &Seen,
        left_out: &mut LeftOut,
    ) -> Result<Option<Plan>, TransactionError> {
        loop {
            let planned = plan(seen, self.desired, left_out);
            if planned.changes.is_empty() {
                return Ok(None);
            }
            let (operation, errors) = match self.try_changes(seen, &planned.changes).await {
                Ok(()) => return Ok(Some(planned)),
                Err(CallError::Refused { operation, errors }) => (operation, errors),
                Err(error) => return Err(error.into()),
            };
            self.leave_out(seen, &planned.changes, &operation, errors, Depth::Stage, left_out).await?;
        }
    }

    /// One edit of a clean target, validated.
    async fn try_changes(&self, seen: &Seen, changes: &Changes) -> Result<(), CallError> {
        let config = self.dialect.render(seen, changes);
        let Self { profile, .. } = self;
        let edit =
            Operation::Edit { target: profile.target, rollback_on_error: profile.rollback_on_error, config };
        let discarded = (profile.target == Target::Candidate).then(|| self.send(Operation::Discard));
        let edited = self.send(edit);
        let validated =
            (profile.target == Target::Candidate && profile.validate).then(|| self.send(Operation::Validate));
        // All replies are awaited before a refusal is acted upon: the next request starts from a quiet session. Of one
        // that doesn't answer no more is expected, since each reply would be waited for anew.
        let mut staged = Ok(());
        for call in discarded.into_iter().chain([edited]).chain(validated) {
            match call.await {
                Err(CallError::Session(error)) => return Err(error.into()),
                reply => staged = staged.and(reply.map(drop)),
            }
        }
        staged
    }

    /// Adds to `left_out` what the device refuses of `changes`, or fails when it is not about single items.
    pub(super) async fn leave_out(
        &self,
        seen: &Seen,
        changes: &Changes,
        operation: &str,
        errors: RpcErrors,
        depth: Depth,
        left_out: &mut LeftOut,
    ) -> Result<(), TransactionError> {
        let refused = |errors: RpcErrors| {
            let retryable = may_pass(&errors);
            TransactionError::Refused { operation: operation.to_owned(), errors, retryable }
        };
        if errors.tagged("access-denied").is_some() || is_locked(&errors) {
            return Err(refused(errors));
        }
        // Other requests hold no configuration: such words are about the request itself.
        let of_request =
            ["unknown-element", "unknown-attribute", "operation-not-supported", "malformed-message"];
        if operation != "<edit-config>" && of_request.iter().any(|tag| errors.tagged(tag).is_some()) {
            return Err(refused(errors));
        }
        let (mut named, mut ports) = (0, Vec::new());
        for error in &errors.0 {
            let reason = || format!("the device refuses it: {error}");
            match self.dialect.blame(error, seen, changes) {
                // An error at the port may be about any of its VLANs.
                Some(Unit::Port(name)) if changes.size_on(&name) > 1 => {
                    ports.push((Unit::Port(name), reason()));
                }
                Some(unit) => {
                    debug!(?unit, %error, "left out");
                    named += usize::from(left_out.add(unit, reason()));
                }
                None => {}
            }
        }
        if named > 0 {
            return if left_out.len() > MOST_NAMED { Err(refused(errors)) } else { Ok(()) };
        }
        // A part that is tried would stay, whatever becomes of the transaction.
        let stays = depth == Depth::Commit && self.profile.confirmation != Confirmation::Persistent;
        let mut found = if self.holds() && stays {
            Vec::new()
        } else {
            self.bisect(seen, changes, depth, left_out, &errors).await?
        };
        if found.is_empty() {
            found = ports;
        }
        if found.is_empty() {
            return Err(refused(errors));
        }
        for (unit, reason) in found {
            left_out.add(unit, reason);
        }
        Ok(())
    }

    /// Finds the units that are refused by trying parts: first removals, then new VLANs without any port, then ports, then
    /// the VLANs of each refused port. Empty: no part was accepted.
    async fn bisect(
        &self,
        seen: &Seen,
        changes: &Changes,
        depth: Depth,
        left_out: &LeftOut,
        errors: &RpcErrors,
    ) -> Result<Vec<(Unit, String)>, TransactionError> {
        self.work.progress("the device refuses the change and does not name what of it: trying parts");
        let mut budget = MOST_TRIES;
        let trials =
            Trials { transaction: self, seen, depth, base: left_out, first: errors, last: Mutex::default() };
        let removals = changes.removals();
        let makes: Vec<Unit> = changes.make.keys().copied().map(Unit::Vlan).collect();
        let additions = changes.additions();
        let all_additions: Vec<Unit> = additions.values().flatten().cloned().collect();

        let without_removals = [&*makes, &*all_additions].concat();
        if !removals.is_empty() && !trials.accepts(without_removals.clone()).await? {
            let refused = super::bisect::refused(&removals, &mut budget, |part| {
                trials.accepts([without_removals.clone(), rest(&removals, &part)].concat())
            });
            return Ok(trials.explained(refused.await?.unwrap_or(removals)));
        }
        if !makes.is_empty() && !trials.accepts(all_additions.clone()).await? {
            let refused = super::bisect::refused(&makes, &mut budget, |part| {
                trials.accepts([all_additions.clone(), rest(&makes, &part)].concat())
            });
            return Ok(trials.explained(refused.await?.unwrap_or_default()));
        }
        let ports: Vec<&String> = additions.keys().copied().collect();
        let of = |ports: Vec<&String>| ports.into_iter().flat_map(|name| additions[name].clone()).collect();
        let refused =
            super::bisect::refused(&ports, &mut budget, |part| trials.accepts(of(rest(&ports, &part))));
        let refused = refused.await?.unwrap_or_else(|| ports.clone());
        if refused.len() == ports.len() && ports.len() > 1 {
            // The same VLANs on each port, perhaps.
            let vids: Vec<VlanId> = changes.added_on_ports().iter().collect();
            let on_ports = |vids: Vec<VlanId>| -> Vec<Unit> {
                let vids: VlanSet = vids.into_iter().collect();
                let of_them = |unit: &&Unit| matches!(unit, Unit::PortVlan(_, vid) if vids.contains(*vid));
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
                return Ok(trials.explained(refused.await?.unwrap_or(suspects)));
            }
            return Ok(trials.explained(changes.refused_on(refused)));
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
        Ok(trials.explained(found))
    }
}

/// The members of `all` that are not in `part`.
fn rest<T: Ord + Clone>(all: &[T], part: &[T]) -> Vec<T> {
    let part: BTreeSet<&T> = part.iter().collect();
    all.iter().filter(|member| !part.contains(member)).cloned().collect()
}

/// Somebody else holds what is to be changed.
fn is_locked(errors: &RpcErrors) -> bool {
    ["in-use", "lock-denied"].iter().any(|tag| errors.tagged(tag).is_some())
}

struct Trials<'a, 'b, S> {
    transaction: &'a Transaction<'b, S>,
    seen: &'a Seen,
    depth: Depth,
    base: &'a LeftOut,
    /// With what the whole was refused.
    first: &'a RpcErrors,
    /// With what the last part that was refused was.
    last: Mutex<Option<String>>,
}

impl<S: Session> Trials<'_, '_, S> {
    /// Whether the device accepts the change without `others`.
    async fn accepts(&self, others: Vec<Unit>) -> Result<bool, TransactionError> {
        let transaction = self.transaction;
        let mut left_out = self.base.clone();
        for unit in others {
            left_out.add(unit, "");
        }
        let changes = plan(self.seen, transaction.desired, &left_out).changes;
        if changes.is_empty() {
            return Ok(true);
        }
        if !transaction.work.is_current() {
            // What is found does not count any more.
            return Ok(false);
        }
        let tried = match transaction.try_changes(self.seen, &changes).await {
            Ok(()) if self.depth == Depth::Commit => self.try_commit().await,
            tried => tried,
        };
        match tried {
            Ok(()) => Ok(true),
            Err(CallError::Refused { errors, .. }) if !is_locked(&errors) => {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(errors.to_string());
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Commits, and takes it back where that is possible; where it is not, what is taken is wanted anyway.
    async fn try_commit(&self) -> Result<(), CallError> {
        let transaction = self.transaction;
        if transaction.profile.confirmation == Confirmation::Persistent {
            let committed = match transaction.commit() {
                Some(commit) => commit.await.map(drop),
                None => Ok(()),
            };
            if !matches!(committed, Err(CallError::Session(_))) {
                transaction.take_back().await?;
            }
            committed
        } else {
            transaction.send(Operation::Commit).await.map(drop)
        }
    }

    fn explained(&self, units: Vec<Unit>) -> Vec<(Unit, String)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = match &*last {
            Some(last) => last.clone(),
            // It passed while parts were tried.
            None if may_pass(self.first) => return Vec::new(),
            None => self.first.to_string(),
        };
        units.into_iter().map(|unit| (unit, format!("the device refuses it: {reason}"))).collect()
    }
}
