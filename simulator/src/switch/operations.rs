//! Executes NETCONF operations.

use std::sync::Weak;

use super::{Reaction, Reply, State, Switch};
use crate::datastores::{Applied, CommitRequest, Deadline, Name, SessionId};
use crate::faults::{Fault, Seen, Stage};
use crate::model::edit::{self, Edit, OnError, Operation};
use crate::model::filter;
use crate::model::tree::Container;
use crate::netconf::error::{RpcError, Tag};
use crate::netconf::push::{self, Establish, Subscription};
use crate::netconf::rpc::{EditConfig, Rpc, Source, TestOption};
use crate::netconf::xml::Element;
use crate::notifications::Event;

impl Switch {
    /// Executes an operation. The caller publishes changes of running.
    pub(super) fn perform(&self, state: &mut State, session: SessionId, rpc: Rpc, message: &str) -> Reaction {
        if let Some(error) = state.denied(rpc.name()) {
            return Reaction::reply(Reply::Errors(one(error)));
        }
        let result = match rpc {
            Rpc::Get { filter } => {
                let whole = (self.dialect.operational)(state.stores.running(), &self.hardware);
                Ok(self.data(state, whole, filter))
            }
            Rpc::GetConfig { source, filter } => {
                let whole = state.stores.get(source);
                Ok(self.data(state, whole, filter))
            }
            Rpc::EditConfig(request) => self.edit_config(state, session, request, message),
            Rpc::CopyConfig { target, source } => self.copy_config(state, session, target, source),
            Rpc::DeleteConfig { target } => state.stores.writable(target, session).map_err(one).map(|()| {
                state.stores.delete_startup();
                Reply::Ok
            }),
            Rpc::Lock { target } => Self::lock(state, session, target),
            Rpc::Unlock { target } => state.stores.unlock(target, session).map(|()| Reply::Ok).map_err(one),
            Rpc::DiscardChanges => state.stores.discard(session).map(|()| Reply::Ok).map_err(one),
            Rpc::Validate { source } => self.validate(state, source),
            Rpc::Commit(request) => return self.commit(state, session, request),
            Rpc::CancelCommit { persist_id } => {
                state.stores.cancel(session, persist_id.as_deref()).map_err(one).map(|()| {
                    state.stats.rolled_back += 1;
                    let origin = state.origin(Some(session));
                    state.announce(&Event::Confirm("cancel"), &origin);
                    Reply::Ok
                })
            }
            Rpc::KillSession { session: other } => Self::kill(state, session, other),
            Rpc::CloseSession => return Reaction { last: true, ..Reaction::reply(Reply::Ok) },
            Rpc::CreateSubscription => state.subscribe(session),
            Rpc::EstablishSubscription(wanted) => Ok(self.establish(state, session, wanted)),
            Rpc::DeleteSubscription { id } => state.unsubscribe(session, id),
        };
        Reaction::reply(result.unwrap_or_else(Reply::Errors))
    }

    /// Establishes a YANG-push subscription. With `sync-on-start`, a `push-update` follows the reply.
    fn establish(&self, state: &mut State, session: SessionId, wanted: Establish) -> Reply {
        state.last_subscription = state.last_subscription.checked_add(1).unwrap_or(1);
        let id = state.last_subscription;
        let subscription = Subscription { id, wanted, told: 0 };
        let running = state.stores.running().clone();
        if let Some(session) = state.sessions.get_mut(&session) {
            if subscription.wanted.sync_on_start {
                let data = if subscription.wanted.operational {
                    (self.dialect.operational)(&running, &self.hardware)
                } else {
                    running
                };
                // The receiver is gone only if the session is ending.
                let _ = session.outgoing.send(subscription.update(&data, self.dialect.roots));
            }
            session.subscriptions.push(subscription);
        }
        Reply::Content(push::established(id))
    }

    fn data(&self, state: &State, mut config: Container, mut filter: Option<Vec<Element>>) -> Reply {
        if state.faults.any(|fault| *fault == Fault::FirstSiblingOnly {}) {
            filter.iter_mut().for_each(filter::keep_first_siblings);
        }
        for subtree in state.faults.denied(true) {
            config = config.without(self.dialect.roots, subtree);
        }
        let config = &config;
        let mut out = String::new();
        match filter {
            None => config.write(self.dialect.roots, "", &mut out),
            Some(filter) => {
                filter::select(config, self.dialect.roots, &filter).write(self.dialect.roots, "", &mut out);
            }
        }
        Reply::Data(out)
    }

    fn lock(state: &mut State, session: SessionId, target: Name) -> Result<Reply, Vec<RpcError>> {
        if state.faults.strike(|fault| matches!(fault, Fault::LockDenied { .. }).then_some(())).is_some() {
            let denied = RpcError::protocol(
                Tag::LockDenied,
                format!("lock of {} denied: it is locked", target.as_str()),
            );
            return Err(one(denied.info("session-id", "0")));
        }
        if let Some(holder) = state.faults.lock_holder(target.as_str()) {
            let denied = format!("lock of {} denied: it is locked", target.as_str());
            return Err(one(
                RpcError::protocol(Tag::LockDenied, denied).info("session-id", holder.to_string())
            ));
        }
        state.stores.lock(target, session).map(|()| Reply::Ok).map_err(one)
    }

    fn kill(state: &mut State, session: SessionId, other: SessionId) -> Result<Reply, Vec<RpcError>> {
        let bad = |why: &str| {
            Err(one(RpcError::protocol(Tag::InvalidValue, why).info("bad-element", "session-id")))
        };
        match state.sessions.get(&other) {
            _ if other == session => bad("a session can't kill itself"),
            None => bad("there is no such session"),
            Some(victim) => {
                victim.end.cancel();
                // Remove it at once instead of when its connection has ended.
                let origin = state.origin(Some(other));
                state.announce(&Event::SessionEnd, &origin);
                state.sessions.remove(&other);
                let rolled_back = state.end_in_stores(other);
                state.stats.rolled_back += u64::from(rolled_back);
                Ok(Reply::Ok)
            }
        }
    }

    fn edit_config(
        &self,
        state: &mut State,
        session: SessionId,
        request: EditConfig,
        message: &str,
    ) -> Result<Reply, Vec<RpcError>> {
        let EditConfig { target, default, test, on_error, edits } = request;
        state.free(target).map_err(one)?;
        state.stores.writable(target, session).map_err(one)?;
        state.permitted(&edits, default)?;
        if state.faults.strike(|fault| fault.ignores(message).then_some(())).is_some() {
            return Ok(Reply::Ok);
        }
        let seen = [Seen { edits: &edits, xml: message }];
        if let Some(errors) = state.faults.refusal(&[Stage::Edit], &seen) {
            return Err(errors);
        }
        if target == Name::Running {
            state.stats.transactions += 1;
            if state.stores.is_pending() {
                return Err(one(RpcError::protocol(Tag::InUse, "a confirmed commit is in progress")));
            }
            if let Some(errors) = state.faults.refusal(&[Stage::Validate, Stage::Commit], &seen) {
                return Err(errors);
            }
        }
        let (config, mut errors) = state.stores.edited(target, &edits, default, on_error);
        // Running must always be valid; a candidate only at its commit.
        let validated = target == Name::Running || test != TestOption::Set;
        let faults = if validated { (self.dialect.check)(&config, &self.hardware) } else { Vec::new() };
        let keep = faults.is_empty()
            && test != TestOption::TestOnly
            && (errors.is_empty() || on_error != OnError::Rollback);
        errors.extend(faults);
        if keep {
            state.stores.put(target, config, Some(Applied { edits, xml: message.to_owned() }));
        }
        if errors.is_empty() { Ok(Reply::Ok) } else { Err(errors) }
    }

    fn copy_config(
        &self,
        state: &mut State,
        session: SessionId,
        target: Name,
        source: Source,
    ) -> Result<Reply, Vec<RpcError>> {
        state.free(target).map_err(one)?;
        state.stores.writable(target, session).map_err(one)?;
        let config = Self::resolve(state, source)?;
        if target == Name::Running {
            state.stats.transactions += 1;
            let errors = (self.dialect.check)(&config, &self.hardware);
            if !errors.is_empty() {
                return Err(errors);
            }
        }
        state.stores.put(target, config, None);
        Ok(Reply::Ok)
    }

    fn resolve(state: &State, source: Source) -> Result<Container, Vec<RpcError>> {
        match source {
            Source::Datastore(name) => Ok(state.stores.get(name)),
            Source::Inline(edits) => {
                let mut config = Container::default();
                edit::apply(&mut config, &edits, Operation::Merge, OnError::Continue)?;
                Ok(config)
            }
        }
    }

    fn validate(&self, state: &mut State, source: Source) -> Result<Reply, Vec<RpcError>> {
        if matches!(source, Source::Datastore(Name::Candidate))
            && let Some(errors) = state.refusal_of_candidate(&[Stage::Validate])
        {
            return Err(errors);
        }
        let config = Self::resolve(state, source)?;
        let errors = (self.dialect.check)(&config, &self.hardware);
        if errors.is_empty() { Ok(Reply::Ok) } else { Err(errors) }
    }

    fn commit(&self, state: &mut State, session: SessionId, mut request: CommitRequest) -> Reaction {
        let lost = Reaction::lost();
        if state.faults.any(|fault| matches!(fault, Fault::IgnoreConfirmed {})) && !state.stores.is_pending()
        {
            request = CommitRequest::default();
        }
        let confirming = state.stores.is_pending() && request.confirmed.is_none();
        let struck = |state: &mut State, which: fn(&Fault) -> bool| {
            state.faults.strike(|fault| which(fault).then_some(())).is_some()
        };
        if confirming && struck(state, |fault| matches!(fault, Fault::LoseConfirm { .. }))
            || !confirming && struck(state, |fault| matches!(fault, Fault::DropBeforeCommit { .. }))
        {
            state.sever(session);
            return lost;
        }
        let reply = self.do_commit(state, session, request, confirming);
        if !confirming
            && reply.is_ok()
            && struck(state, |fault| matches!(fault, Fault::DropAfterCommit { .. }))
        {
            state.sever(session);
            return lost;
        }
        Reaction::reply(reply.unwrap_or_else(Reply::Errors))
    }

    fn do_commit(
        &self,
        state: &mut State,
        session: SessionId,
        request: CommitRequest,
        confirming: bool,
    ) -> Result<Reply, Vec<RpcError>> {
        if !confirming {
            state.stats.transactions += 1;
        }
        state.free(Name::Running).map_err(one)?;
        state.free(Name::Candidate).map_err(one)?;
        state.stores.may_commit(session, &request).map_err(one)?;
        if let Some(errors) = state.refusal_of_candidate(&[Stage::Validate, Stage::Commit]) {
            return Err(errors);
        }
        let errors = (self.dialect.check)(&state.stores.get(Name::Candidate), &self.hardware);
        if !errors.is_empty() {
            return Err(errors);
        }
        let follows = state.stores.is_pending();
        let committed = state.stores.commit(session, request);
        let origin = state.origin(Some(session));
        if committed.confirming {
            state.stats.confirmed += 1;
            state.announce(&Event::Confirm("complete"), &origin);
        }
        if let Some(deadline) = committed.deadline {
            state.announce(&Event::Confirm(if follows { "extend" } else { "start" }), &origin);
            self.watch(deadline);
        }
        Ok(Reply::Ok)
    }

    /// Schedules the rollback of a confirmed commit.
    fn watch(&self, deadline: Deadline) {
        let this = Weak::clone(&self.this);
        let shutdown = self.shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(deadline.after) => {
                    if let Some(switch) = this.upgrade() {
                        switch.expire(deadline.ticket);
                    }
                }
            }
        });
    }

    fn expire(&self, ticket: u64) {
        let mut state = self.state();
        let before = state.stores.running().clone();
        if state.stores.expire(ticket) {
            tracing::info!(switch = self.name, "commit not confirmed in time: rolled back");
            state.stats.rolled_back += 1;
            let origin = state.origin(None);
            state.announce(&Event::Confirm("timeout"), &origin);
            self.settle(&mut state, &before, &origin);
        }
    }
}

impl State {
    fn subscribe(&mut self, session: SessionId) -> Result<Reply, Vec<RpcError>> {
        match self.sessions.get_mut(&session) {
            Some(session) if !session.subscribed => {
                session.subscribed = true;
                Ok(Reply::Ok)
            }
            _ => Err(one(RpcError::protocol(Tag::InUse, "this session has a subscription already"))),
        }
    }

    fn unsubscribe(&mut self, session: SessionId, id: u32) -> Result<Reply, Vec<RpcError>> {
        let subscriptions = self.sessions.get_mut(&session).map(|session| &mut session.subscriptions);
        match subscriptions.and_then(|all| Some(all.remove(all.iter().position(|s| s.id == id)?))) {
            Some(_) => Ok(Reply::Ok),
            None => {
                Err(one(RpcError::application(Tag::InvalidValue, "this session has no such subscription")
                    .app_tag("ietf-subscribed-notifications:no-such-subscription")))
            }
        }
    }

    /// Returns the error if [`Fault::AccessDenied`] denies an operation.
    fn denied(&self, name: &str) -> Option<RpcError> {
        let denies = |fault: &Fault| matches!(fault, Fault::AccessDenied { operation: Some(operation), .. } if operation == name);
        self.faults.any(denies).then(|| {
            RpcError::protocol(Tag::AccessDenied, format!("access to the operation {name} is denied"))
        })
    }

    /// Fails if [`Fault::AccessDenied`] denies a node of an edit.
    fn permitted(&self, edits: &[Edit], default: Operation) -> Result<(), Vec<RpcError>> {
        let places =
            self.faults.denied(false).flat_map(|subtree| edit::places_below(edits, subtree, default));
        let denied = |path| {
            RpcError::application(Tag::AccessDenied, "access to this part of the configuration is denied")
                .at(path)
        };
        let errors: Vec<_> = places.map(denied).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Fails with `in-use` if, by [`Fault::Locked`], another manager holds the lock of a datastore.
    fn free(&self, target: Name) -> Result<(), RpcError> {
        match self.faults.lock_holder(target.as_str()) {
            None => Ok(()),
            Some(holder) => {
                let message = format!("{} is locked by session {holder}", target.as_str());
                Err(RpcError::protocol(Tag::InUse, message).info("session-id", holder.to_string()))
            }
        }
    }

    pub(super) fn sever(&self, session: SessionId) {
        if let Some(session) = self.sessions.get(&session) {
            session.connection.cancel();
        }
    }

    fn refusal_of_candidate(&mut self, stages: &[Stage]) -> Option<Vec<RpcError>> {
        let Self { stores, faults, .. } = self;
        let seen: Vec<_> = stores
            .candidate_edits()
            .iter()
            .map(|applied| Seen { edits: &applied.edits, xml: &applied.xml })
            .collect();
        faults.refusal(stages, &seen)
    }
}

fn one(error: RpcError) -> Vec<RpcError> {
    vec![error]
}
