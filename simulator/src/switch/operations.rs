//! Executes NETCONF operations.

use std::sync::Weak;

use super::{Reply, RpcOutcome, State, Switch};
use crate::bgp_sessions::{BgpSupport, Shown};
use crate::datastores::{AppliedEdit, CommitRequest, ConfirmDeadline, Datastore, SessionId};
use crate::faults::{Fault, Stage, SubmittedEdit};
use crate::mac_table::MacTable;
use crate::model::edit::{self, Edit, OnError, Operation};
use crate::model::filter;
use crate::model::tree::Container;
use crate::netconf::error::{RpcError, Tag};
use crate::netconf::push::{self, EstablishSubscription, Subscription};
use crate::netconf::rpc::{EditConfig, Rpc, Source, TestOption};
use crate::netconf::xml::Element;
use crate::notifications::Event;

impl Switch {
    /// Executes an operation. The caller publishes changes of running.
    pub(super) fn perform(
        &self,
        state: &mut State,
        session: SessionId,
        rpc: Rpc,
        message: &str,
    ) -> RpcOutcome {
        if let Some(error) = state.operation_denied(rpc.name()) {
            return RpcOutcome::reply(Reply::Errors(single(error)));
        }
        let result = match rpc {
            Rpc::Get { filter } => {
                let mut whole = (self.dialect.operational)(state.datastores.running(), &self.hardware);
                if let MacTable::State(add) = self.dialect.mac_table {
                    add(&mut whole, &self.learnt(state));
                }
                if let Some(BgpSupport { shown: Shown::State(add), .. }) = self.dialect.bgp {
                    add(&mut whole, &self.bgp_sessions(state));
                }
                Ok(self.data_reply(state, whole, filter))
            }
            Rpc::GetConfig { source, filter } => Ok(if let Some(answer) = state.faults.long_answer() {
                Reply::Data(answer.text())
            } else {
                let whole = state.shown(source);
                self.data_reply(state, whole, filter)
            }),
            Rpc::EditConfig(request) => self.edit_config(state, session, request, message),
            Rpc::CopyConfig { target, source } => self.copy_config(state, session, target, source),
            Rpc::DeleteConfig { target } => {
                state.datastores.ensure_writable(target, session).map_err(single).map(|()| {
                    state.datastores.delete_startup();
                    Reply::Ok
                })
            }
            Rpc::Lock { target } => Self::lock(state, session, target),
            Rpc::Unlock { target } => {
                state.datastores.unlock(target, session).map(|()| Reply::Ok).map_err(single)
            }
            Rpc::DiscardChanges => state.datastores.discard(session).map(|()| Reply::Ok).map_err(single),
            Rpc::Validate { source } => self.validate(state, source),
            Rpc::Commit(request) => return self.commit(state, session, request),
            Rpc::CancelCommit { persist_id } => {
                state.datastores.cancel_commit(session, persist_id.as_deref()).map_err(single).map(|()| {
                    state.stats.rolled_back += 1;
                    let origin = state.origin(Some(session));
                    state.notify(&Event::Confirm("cancel"), &origin);
                    Reply::Ok
                })
            }
            Rpc::KillSession { session: other } => Self::kill_session(state, session, other),
            Rpc::CloseSession => return RpcOutcome { ends_session: true, ..RpcOutcome::reply(Reply::Ok) },
            Rpc::CreateSubscription => state.subscribe(session),
            Rpc::EstablishSubscription(request) => Ok(self.establish_subscription(state, session, request)),
            Rpc::DeleteSubscription { id } => state.unsubscribe(session, id),
            Rpc::ShowBgp(query) => Ok(Reply::Content(match self.dialect.bgp.map(|bgp| bgp.shown) {
                Some(Shown::Operations(_, write)) => write(&query, &self.bgp_sessions(state)),
                Some(Shown::State(_)) | None => String::new(),
            })),
            Rpc::GetEthernetSwitchingTableInformation => {
                let view = (self.dialect.view)(state.datastores.running(), &self.hardware);
                Ok(Reply::Content(match self.dialect.mac_table {
                    MacTable::Operation(_, write) => write(&view, &self.learnt(state)),
                    MacTable::Hidden | MacTable::State(_) => String::new(),
                }))
            }
        };
        RpcOutcome::reply(result.unwrap_or_else(Reply::Errors))
    }

    /// Establishes a YANG-push subscription. With `sync-on-start`, a `push-update` follows the reply.
    fn establish_subscription(
        &self,
        state: &mut State,
        session: SessionId,
        request: EstablishSubscription,
    ) -> Reply {
        state.last_subscription = state.last_subscription.checked_add(1).unwrap_or(1);
        let id = state.last_subscription;
        let subscription = Subscription { id, request, updates_sent: 0 };
        let running = state.datastores.running().clone();
        if let Some(session) = state.sessions.get_mut(&session) {
            if subscription.request.sync_on_start {
                let data = if subscription.request.operational {
                    (self.dialect.operational)(&running, &self.hardware)
                } else {
                    running
                };
                // The receiver is gone only if the session is ending.
                let _ = session.outgoing.send(subscription.push_update(&data, self.dialect.roots));
            }
            session.subscriptions.push(subscription);
        }
        Reply::Content(push::established(id))
    }

    fn data_reply(&self, state: &State, mut config: Container, mut filter: Option<Vec<Element>>) -> Reply {
        if filter.as_ref().is_some_and(|filter| filter.len() > 1)
            && state.faults.any(|fault| *fault == Fault::OneRootPerFilter {})
        {
            let why = "a filter has one root element";
            return Reply::Errors(single(RpcError::protocol(Tag::OperationFailed, why)));
        }
        if state.faults.any(|fault| *fault == Fault::FirstSiblingOnly {}) {
            filter.iter_mut().for_each(filter::keep_first_siblings);
        }
        for subtree in state.faults.denied_subtrees(true) {
            config = config.without_subtree(self.dialect.roots, subtree);
        }
        let config = &config;
        let mut out = String::new();
        match filter {
            None => config.write_xml(self.dialect.roots, "", &mut out),
            Some(filter) => {
                filter::select(config, self.dialect.roots, &filter).write_xml(
                    self.dialect.roots,
                    "",
                    &mut out,
                );
            }
        }
        Reply::Data(out)
    }

    fn lock(state: &mut State, session: SessionId, target: Datastore) -> Result<Reply, Vec<RpcError>> {
        if state.faults.trigger(|fault| matches!(fault, Fault::LockDenied { .. }).then_some(())).is_some() {
            let denied = RpcError::protocol(
                Tag::LockDenied,
                format!("lock of {} denied: it is locked", target.as_str()),
            );
            return Err(single(denied.info("session-id", "0")));
        }
        let unsupported = |fault: &Fault| matches!(fault, Fault::LockUnsupported { datastore } if datastore == target.as_str());
        if state.faults.any(unsupported) {
            let why = format!("{} has no locks", target.as_str());
            return Err(single(RpcError::protocol(Tag::OperationNotSupported, why)));
        }
        if let Some(holder) = state.faults.lock_holder(target.as_str()) {
            let denied = format!("lock of {} denied: it is locked", target.as_str());
            return Err(single(
                RpcError::protocol(Tag::LockDenied, denied).info("session-id", holder.to_string()),
            ));
        }
        state.datastores.lock(target, session).map(|()| Reply::Ok).map_err(single)
    }

    fn kill_session(state: &mut State, session: SessionId, other: SessionId) -> Result<Reply, Vec<RpcError>> {
        let bad = |why: &str| {
            Err(single(RpcError::protocol(Tag::InvalidValue, why).info("bad-element", "session-id")))
        };
        match state.sessions.get(&other) {
            _ if other == session => bad("a session can't kill itself"),
            None => bad("there is no such session"),
            Some(victim) => {
                victim.end.cancel();
                // Remove it at once instead of when its connection has ended.
                let origin = state.origin(Some(other));
                state.notify(&Event::SessionEnd, &origin);
                state.sessions.remove(&other);
                let rolled_back = state.release_session(other);
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
        let EditConfig { target, default, test, on_error, mut edits } = request;
        if let Some(to) = state.faults.name_change() {
            edit::change_vlan_names(&mut edits, &|name| to.apply(name));
        }
        state.check_foreign_lock(target).map_err(single)?;
        state.datastores.ensure_writable(target, session).map_err(single)?;
        state.check_access(&edits, default)?;
        if state.faults.any(|fault| *fault == Fault::RemoveNeedsValue {})
            && edit::removes_without_value(&edits)
        {
            let why = "Invalid value '' for enum type";
            return Err(single(RpcError::application(Tag::InvalidValue, why)));
        }
        if state.faults.trigger(|fault| fault.ignores(message).then_some(())).is_some() {
            return Ok(Reply::Ok);
        }
        let submitted = [SubmittedEdit { edits: &edits, xml: message }];
        if let Some(errors) = state.faults.rejection(&[Stage::Edit], &submitted) {
            return Err(errors);
        }
        if target == Datastore::Running {
            state.stats.transactions += 1;
            if state.datastores.is_pending() {
                return Err(single(RpcError::protocol(Tag::InUse, "a confirmed commit is in progress")));
            }
            if let Some(errors) = state.faults.rejection(&[Stage::Validate, Stage::Commit], &submitted) {
                return Err(errors);
            }
        }
        let (config, mut errors) = state.datastores.preview_edit(target, &edits, default, on_error);
        // Running must always be valid; a candidate only at its commit.
        let validated = target == Datastore::Running || test != TestOption::Set;
        let faults = if validated { self.check(state, &config) } else { Vec::new() };
        let keep = faults.is_empty()
            && test != TestOption::TestOnly
            && (errors.is_empty() || on_error != OnError::Rollback);
        errors.extend(faults);
        if keep {
            state.datastores.set(target, config, Some(AppliedEdit { edits, xml: message.to_owned() }));
        }
        if errors.is_empty() { Ok(Reply::Ok) } else { Err(errors) }
    }

    fn copy_config(
        &self,
        state: &mut State,
        session: SessionId,
        target: Datastore,
        source: Source,
    ) -> Result<Reply, Vec<RpcError>> {
        state.check_foreign_lock(target).map_err(single)?;
        state.datastores.ensure_writable(target, session).map_err(single)?;
        let config = Self::resolve(state, source)?;
        if target == Datastore::Running {
            state.stats.transactions += 1;
            let errors = self.check(state, &config);
            if !errors.is_empty() {
                return Err(errors);
            }
        }
        state.datastores.set(target, config, None);
        Ok(Reply::Ok)
    }

    fn resolve(state: &State, source: Source) -> Result<Container, Vec<RpcError>> {
        match source {
            Source::Datastore(name) => Ok(state.datastores.get(name)),
            Source::Inline(edits) => {
                let mut config = Container::default();
                edit::apply(&mut config, &edits, Operation::Merge, OnError::Continue)?;
                Ok(config)
            }
        }
    }

    /// The errors of a configuration. The one that was valid last is not checked again: most commits follow a
    /// validation.
    fn check(&self, state: &mut State, config: &Container) -> Vec<RpcError> {
        if state.last_valid.as_ref() == Some(config) {
            return Vec::new();
        }
        let errors = (self.dialect.check)(config, &self.hardware);
        if errors.is_empty() {
            state.last_valid = Some(config.clone());
        }
        errors
    }

    fn validate(&self, state: &mut State, source: Source) -> Result<Reply, Vec<RpcError>> {
        if matches!(source, Source::Datastore(Datastore::Candidate))
            && let Some(errors) = state.candidate_rejection(&[Stage::Validate])
        {
            return Err(errors);
        }
        let config = Self::resolve(state, source)?;
        let errors = self.check(state, &config);
        if errors.is_empty() { Ok(Reply::Ok) } else { Err(errors) }
    }

    fn commit(&self, state: &mut State, session: SessionId, mut request: CommitRequest) -> RpcOutcome {
        let lost = RpcOutcome::connection_lost();
        if state.faults.any(|fault| matches!(fault, Fault::IgnoreConfirmed {}))
            && !state.datastores.is_pending()
        {
            request = CommitRequest::default();
        }
        let confirming = state.datastores.is_pending() && request.confirmed.is_none();
        let triggered = |state: &mut State, which: fn(&Fault) -> bool| {
            state.faults.trigger(|fault| which(fault).then_some(())).is_some()
        };
        if confirming && triggered(state, |fault| matches!(fault, Fault::LoseConfirm { .. }))
            || !confirming && triggered(state, |fault| matches!(fault, Fault::DropBeforeCommit { .. }))
        {
            state.disconnect(session);
            return lost;
        }
        let reply = self.do_commit(state, session, request, confirming);
        if !confirming
            && reply.is_ok()
            && triggered(state, |fault| matches!(fault, Fault::DropAfterCommit { .. }))
        {
            state.disconnect(session);
            return lost;
        }
        RpcOutcome::reply(reply.unwrap_or_else(Reply::Errors))
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
        state.check_foreign_lock(Datastore::Running).map_err(single)?;
        state.check_foreign_lock(Datastore::Candidate).map_err(single)?;
        state.datastores.check_commit(session, &request).map_err(single)?;
        let request = state.faults.limit_confirm_timeout(request).map_err(single)?;
        if let Some(errors) = state.candidate_rejection(&[Stage::Validate, Stage::Commit]) {
            return Err(errors);
        }
        let candidate = state.datastores.get(Datastore::Candidate);
        let errors = self.check(state, &candidate);
        if !errors.is_empty() {
            return Err(errors);
        }
        let follows = state.datastores.is_pending();
        let committed = state.datastores.commit(session, request);
        let origin = state.origin(Some(session));
        if committed.confirming {
            state.stats.confirmed += 1;
            state.notify(&Event::Confirm("complete"), &origin);
        }
        if let Some(deadline) = committed.deadline {
            state.notify(&Event::Confirm(if follows { "extend" } else { "start" }), &origin);
            self.schedule_rollback(deadline);
        }
        Ok(Reply::Ok)
    }

    /// Schedules the rollback of a confirmed commit.
    fn schedule_rollback(&self, deadline: ConfirmDeadline) {
        let this = Weak::clone(&self.this);
        let shutdown = self.shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(deadline.timeout) => {
                    if let Some(switch) = this.upgrade() {
                        switch.roll_back_expired(deadline.commit_id);
                    }
                }
            }
        });
    }

    fn roll_back_expired(&self, commit_id: u64) {
        let mut state = self.state();
        let before = state.datastores.running().clone();
        if state.datastores.expire_commit(commit_id) {
            tracing::info!(switch = self.name, "commit not confirmed in time: rolled back");
            state.stats.rolled_back += 1;
            let origin = state.origin(None);
            state.notify(&Event::Confirm("timeout"), &origin);
            self.publish_changes(&mut state, &before, &origin);
        }
    }
}

impl State {
    /// The content of a datastore as reads show it.
    fn shown(&self, source: Datastore) -> Container {
        match (&self.former_running, self.faults.running_delay()) {
            (Some((changed, former)), Some((delay, empty)))
                if source == Datastore::Running && changed.elapsed() < delay =>
            {
                if empty {
                    Container::default()
                } else {
                    former.clone()
                }
            }
            _ => self.datastores.get(source),
        }
    }

    fn subscribe(&mut self, session: SessionId) -> Result<Reply, Vec<RpcError>> {
        match self.sessions.get_mut(&session) {
            Some(session) if !session.subscribed => {
                session.subscribed = true;
                Ok(Reply::Ok)
            }
            _ => Err(single(RpcError::protocol(Tag::InUse, "this session has a subscription already"))),
        }
    }

    fn unsubscribe(&mut self, session: SessionId, id: u32) -> Result<Reply, Vec<RpcError>> {
        let subscriptions = self.sessions.get_mut(&session).map(|session| &mut session.subscriptions);
        match subscriptions.and_then(|all| Some(all.remove(all.iter().position(|s| s.id == id)?))) {
            Some(_) => Ok(Reply::Ok),
            None => Err(single(
                RpcError::application(Tag::InvalidValue, "this session has no such subscription")
                    .app_tag("ietf-subscribed-notifications:no-such-subscription"),
            )),
        }
    }

    /// Returns the error if [`Fault::AccessDenied`] denies an operation.
    fn operation_denied(&self, name: &str) -> Option<RpcError> {
        let denies = |fault: &Fault| matches!(fault, Fault::AccessDenied { operation: Some(operation), .. } if operation == name);
        self.faults.any(denies).then(|| {
            RpcError::protocol(Tag::AccessDenied, format!("access to the operation {name} is denied"))
        })
    }

    /// Fails if [`Fault::AccessDenied`] denies a node of an edit.
    fn check_access(&self, edits: &[Edit], default: Operation) -> Result<(), Vec<RpcError>> {
        let nodes = self
            .faults
            .denied_subtrees(false)
            .flat_map(|subtree| edit::nodes_in_subtree(edits, subtree, default));
        let denied = |path| {
            RpcError::application(Tag::AccessDenied, "access to this part of the configuration is denied")
                .at(path)
        };
        let errors: Vec<_> = nodes.map(denied).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Fails with `in-use` if, by [`Fault::Locked`], another manager holds the lock of a datastore.
    fn check_foreign_lock(&self, target: Datastore) -> Result<(), RpcError> {
        match self.faults.lock_holder(target.as_str()) {
            None => Ok(()),
            Some(holder) => {
                let message = format!("{} is locked by session {holder}", target.as_str());
                Err(RpcError::protocol(Tag::InUse, message).info("session-id", holder.to_string()))
            }
        }
    }

    pub(super) fn disconnect(&self, session: SessionId) {
        if let Some(session) = self.sessions.get(&session) {
            session.connection.cancel();
        }
    }

    fn candidate_rejection(&mut self, stages: &[Stage]) -> Option<Vec<RpcError>> {
        let Self { datastores, faults, .. } = self;
        let submitted: Vec<_> = datastores
            .candidate_edits()
            .iter()
            .map(|applied| SubmittedEdit { edits: &applied.edits, xml: &applied.xml })
            .collect();
        faults.rejection(stages, &submitted)
    }
}

fn single(error: RpcError) -> Vec<RpcError> {
    vec![error]
}
