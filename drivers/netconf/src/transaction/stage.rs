//! Getting a change into the device, without the items that it refuses.

use std::sync::{Mutex, PoisonError};

use tracing::debug;

use crate::hello::{Confirmation, Target};
use crate::operation::Operation;
use crate::plan::{Changes, LeftOut, Plan, Seen, Unit, plan};
use crate::reply::RpcErrors;
use crate::session::{CallError, Session};
use crate::transaction::{Transaction, TransactionError, may_pass};

/// How many items errors may name before the whole change is given up.
const MOST_NAMED: usize = 512;
/// How many questions halving may take.
const QUESTIONS: usize = 96;

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
        if errors.tagged("access-denied").is_some()
            || ["in-use", "lock-denied"].iter().any(|t| errors.tagged(t).is_some())
        {
            return Err(refused(errors));
        }
        // Other requests hold no configuration: such words are about the request itself.
        let of_request =
            ["unknown-element", "unknown-attribute", "operation-not-supported", "malformed-message"];
        if operation != "<edit-config>" && of_request.iter().any(|tag| errors.tagged(tag).is_some()) {
            return Err(refused(errors));
        }
        let final_parts = depth == Depth::Commit && self.profile.confirmation != Confirmation::Persistent;
        let mut named = 0;
        for error in &errors.0 {
            if let Some(unit) = self.dialect.blame(error, seen, changes) {
                debug!(?unit, %error, "left out");
                named += usize::from(left_out.add(unit, format!("the device refuses it: {error}")));
            }
        }
        if named > 0 {
            return if left_out.len() > MOST_NAMED { Err(refused(errors)) } else { Ok(()) };
        }
        if self.holds() && final_parts {
            // A part that is tried would stay, whatever becomes of the transaction.
            return Err(refused(errors));
        }
        let found = self.halve(seen, changes, depth, left_out).await?;
        if found.is_empty() {
            return Err(refused(errors));
        }
        for (unit, reason) in found {
            left_out.add(unit, format!("the device refuses it: {reason}"));
        }
        Ok(())
    }

    /// Finds the units that are refused by trying parts: first VLANs without any port, then ports, then the VLANs
    /// of each refused port, or of all ports where each is refused. Of few units that may be every single one. Empty:
    /// they can't be told, for too many are refused.
    async fn halve(
        &self,
        seen: &Seen,
        changes: &Changes,
        depth: Depth,
        left_out: &LeftOut,
    ) -> Result<Vec<(Unit, String)>, TransactionError> {
        self.work.progress("the device refuses the change and does not say what of it: trying parts");
        let search = Search { transaction: self, seen, depth, base: left_out, last: Mutex::default() };
        let mut budget = QUESTIONS;
        let vlans: Vec<Unit> = changes.vlans().iter().map(Unit::Vlan).collect();
        let ports: Vec<Unit> = changes.ports.keys().cloned().map(Unit::Port).collect();
        if search.refuses(&ports).await? {
            let rest = |part: Vec<Unit>| {
                let others = ports.iter().chain(vlans.iter().filter(|unit| !part.contains(unit)));
                let others: Vec<Unit> = others.cloned().collect();
                let search = &search;
                async move { search.refuses(&others).await }
            };
            let culprits = super::culprits::find(&vlans, &mut budget, rest).await?;
            return Ok(search.explained(culprits.unwrap_or_default()));
        }
        let rest = |part: Vec<Unit>| {
            let others: Vec<Unit> = ports.iter().filter(|unit| !part.contains(unit)).cloned().collect();
            let search = &search;
            async move { search.refuses(&others).await }
        };
        let bad_ports = super::culprits::find(&ports, &mut budget, rest).await?;
        let every_port = bad_ports.as_ref().is_none_or(|bad| bad.len() == ports.len());
        if every_port && (ports.len() > 1 || bad_ports.is_none()) {
            // No port takes it: the same VLANs on each, perhaps.
            let rest = |part: Vec<Unit>| {
                let others: Vec<Unit> = vlans.iter().filter(|unit| !part.contains(unit)).cloned().collect();
                let search = &search;
                async move { search.refuses(&others).await }
            };
            let culprits = super::culprits::find(&vlans, &mut budget, rest).await?;
            let some = culprits.filter(|culprits| culprits.len() < vlans.len());
            // It takes no VLAN on any port: each port is refused as it is.
            return Ok(search.explained(some.or(bad_ports).unwrap_or_default()));
        }
        let bad_ports = bad_ports.unwrap_or_default();
        let mut found = Vec::new();
        for bad in bad_ports {
            let Unit::Port(name) = &bad else { continue };
            let Some(change) = changes.ports.get(name) else { continue };
            let on_port: Vec<Unit> = change
                .add
                .union(&change.remove)
                .iter()
                .map(|vid| Unit::PortVlan(name.clone(), vid))
                .collect();
            let rest = |part: Vec<Unit>| {
                let others = ports.iter().filter(|unit| **unit != bad);
                let others: Vec<Unit> =
                    others.chain(on_port.iter().filter(|unit| !part.contains(unit))).cloned().collect();
                let search = &search;
                async move { search.refuses(&others).await }
            };
            match super::culprits::find(&on_port, &mut budget, rest).await? {
                Some(culprits) if culprits.len() < on_port.len() => found.extend(culprits),
                _ => found.push(bad.clone()),
            }
        }
        Ok(search.explained(found))
    }
}

struct Search<'a, 'b, S> {
    transaction: &'a Transaction<'b, S>,
    seen: &'a Seen,
    depth: Depth,
    base: &'a LeftOut,
    /// The device's last words.
    last: Mutex<String>,
}

impl<S: Session> Search<'_, '_, S> {
    /// Whether the device refuses the change without `others`.
    async fn refuses(&self, others: &[Unit]) -> Result<bool, TransactionError> {
        let transaction = self.transaction;
        let mut left_out = self.base.clone();
        for unit in others {
            left_out.add(unit.clone(), "");
        }
        let changes = plan(self.seen, transaction.desired, &left_out).changes;
        if changes.is_empty() {
            return Ok(false);
        }
        let tried = match transaction.try_changes(self.seen, &changes).await {
            Ok(()) if self.depth == Depth::Commit => self.try_commit().await,
            tried => tried,
        };
        match tried {
            Ok(()) => Ok(false),
            Err(CallError::Refused { errors, .. }) if !may_pass(&errors) => {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = errors.to_string();
                Ok(true)
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
        let words = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        units.into_iter().map(|unit| (unit, words.clone())).collect()
    }
}
