//! The datastores of one switch: running, candidate, startup, their locks and the confirmed commit.
//!
//! The module has no clock and does no IO. A confirmed commit returns a [`ConfirmDeadline`]. When its timeout has
//! passed, the caller calls [`Datastores::expire_commit`] with the commit id.

use std::time::Duration;

use crate::model::edit::{self, Edit, OnError, Operation};
use crate::model::tree::Container;
use crate::netconf::error::{RpcError, Tag};
use crate::topology::Capabilities;

/// A NETCONF session-id (RFC 6241 section 8.1).
pub type SessionId = u32;

/// A datastore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Datastore {
    /// The active configuration.
    Running,
    /// The working copy that `<commit>` makes active.
    Candidate,
    /// The configuration that a reboot loads.
    Startup,
}

impl Datastore {
    /// The name of the XML element.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The parameters of a `<commit>` (RFC 6241 section 8.4.5).
#[derive(Debug, Clone, Default)]
pub struct CommitRequest {
    /// `<confirmed/>` with its `<confirm-timeout>`.
    pub confirmed: Option<Duration>,
    /// `<persist>`.
    pub persist: Option<String>,
    /// `<persist-id>`.
    pub persist_id: Option<String>,
}

/// The time at which an unconfirmed commit is rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfirmDeadline {
    /// Identifies the commit to [`Datastores::expire_commit`].
    pub commit_id: u64,
    /// Time from now until the rollback.
    pub timeout: Duration,
}

#[derive(Debug)]
struct PendingCommit {
    /// Running before the confirmed commit.
    rollback_config: Container,
    /// The session that issued it.
    owner: SessionId,
    /// The value of `<persist>`.
    persist: Option<String>,
    /// Identifies it to [`Datastores::expire_commit`].
    commit_id: u64,
}

/// An edit that was applied to the candidate.
#[derive(Debug)]
pub struct AppliedEdit {
    /// The edited data nodes.
    pub edits: Vec<Edit>,
    /// The `<rpc>` message that contained the edit.
    pub xml: String,
}

#[derive(Debug)]
struct Candidate {
    config: Container,
    edits: Vec<AppliedEdit>,
}

/// The result of a successful commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitOutcome {
    /// Whether it confirmed a pending commit.
    pub confirming: bool,
    /// The deadline of its confirmation; absent for a commit that needs none.
    pub deadline: Option<ConfirmDeadline>,
}

/// All datastores of a switch.
#[derive(Debug)]
pub struct Datastores {
    /// The running datastore.
    running: Container,
    /// The candidate; `None` while it equals running.
    candidate: Option<Candidate>,
    /// The startup datastore, if one was saved.
    startup: Option<Container>,
    /// The lock holders, indexed by [`Datastore`].
    locks: [Option<SessionId>; 3],
    /// The confirmed commit that awaits its confirmation.
    pending: Option<PendingCommit>,
    /// The last assigned commit id.
    last_commit_id: u64,
}

impl Datastores {
    /// Creates unlocked datastores with this content.
    pub fn new(running: Container, startup: Option<Container>) -> Self {
        Self { running, candidate: None, startup, locks: [None; 3], pending: None, last_commit_id: 0 }
    }

    /// The content of a datastore. An absent startup is empty.
    pub fn get(&self, name: Datastore) -> Container {
        match name {
            Datastore::Running => self.running.clone(),
            Datastore::Candidate => {
                self.candidate.as_ref().map_or_else(|| self.running.clone(), |c| c.config.clone())
            }
            Datastore::Startup => self.startup.clone().unwrap_or_default(),
        }
    }

    /// The running configuration.
    pub fn running(&self) -> &Container {
        &self.running
    }

    /// Running without an unconfirmed commit. A switch without a startup datastore loads it after a reboot.
    pub fn confirmed_running(&self) -> &Container {
        self.pending.as_ref().map_or(&self.running, |pending| &pending.rollback_config)
    }

    /// The startup configuration, if one was saved.
    pub fn startup(&self) -> Option<&Container> {
        self.startup.as_ref()
    }

    /// The edits of the candidate since it last equalled running.
    pub fn candidate_edits(&self) -> &[AppliedEdit] {
        self.candidate.as_ref().map_or(&[], |candidate| &candidate.edits)
    }

    /// Whether a confirmed commit awaits its confirmation.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// `<lock>` (RFC 6241 section 7.5).
    pub fn lock(&mut self, name: Datastore, session: SessionId) -> Result<(), RpcError> {
        let denied = |holder: SessionId, why: &str| {
            Err(RpcError::protocol(Tag::LockDenied, format!("lock of {} denied: {why}", name.as_str()))
                .info("session-id", holder.to_string()))
        };
        if let Some(holder) = self.locks[name as usize] {
            return denied(holder, "it is locked");
        }
        if name == Datastore::Candidate && self.candidate.is_some() {
            return denied(0, "it was modified and neither committed nor discarded");
        }
        if name == Datastore::Running
            && let Some(pending) = self.pending.as_ref().filter(|pending| pending.owner != session)
        {
            return denied(pending.owner, "a confirmed commit is in progress");
        }
        self.locks[name as usize] = Some(session);
        Ok(())
    }

    /// `<unlock>` (RFC 6241 section 7.6). Unlocking the candidate discards its changes (section 8.3.5.2).
    pub fn unlock(&mut self, name: Datastore, session: SessionId) -> Result<(), RpcError> {
        if self.locks[name as usize] != Some(session) {
            return Err(RpcError::protocol(
                Tag::OperationFailed,
                format!("this session does not hold the lock of {}", name.as_str()),
            ));
        }
        self.locks[name as usize] = None;
        if name == Datastore::Candidate {
            self.candidate = None;
        }
        Ok(())
    }

    /// Fails with `in-use` if another session has locked the datastore.
    pub fn ensure_writable(&self, name: Datastore, session: SessionId) -> Result<(), RpcError> {
        match self.locks[name as usize] {
            Some(holder) if holder != session => Err(RpcError::protocol(
                Tag::InUse,
                format!("{} is locked by session {holder}", name.as_str()),
            )
            .info("session-id", holder.to_string())),
            _ => Ok(()),
        }
    }

    /// Computes the result of an edit without storing it. Errors come with the partial result that `on_error` leaves.
    pub fn preview_edit(
        &self,
        name: Datastore,
        edits: &[Edit],
        default: Operation,
        on_error: OnError,
    ) -> (Container, Vec<RpcError>) {
        let mut config = self.get(name);
        let errors = edit::apply(&mut config, edits, default, on_error).err().unwrap_or_default();
        (config, errors)
    }

    /// Sets the content of a datastore. The candidate remembers `edit`.
    pub fn set(&mut self, name: Datastore, config: Container, edit: Option<AppliedEdit>) {
        match name {
            Datastore::Running => self.running = config,
            Datastore::Startup => self.startup = Some(config),
            Datastore::Candidate => {
                let mut all = self.candidate.take().map(|c| c.edits).unwrap_or_default();
                all.extend(edit);
                self.candidate = Some(Candidate { config, edits: all });
            }
        }
    }

    /// `<delete-config>` of startup.
    pub fn delete_startup(&mut self) {
        self.startup = None;
    }

    /// `<discard-changes>` (RFC 6241 section 8.3.4.2).
    pub fn discard(&mut self, session: SessionId) -> Result<(), RpcError> {
        self.ensure_writable(Datastore::Candidate, session)?;
        self.candidate = None;
        Ok(())
    }

    /// Checks the preconditions of a commit (RFC 6241 sections 8.3.4.1 and 8.4): the locks and, during a confirmed
    /// commit, the `persist-id` or session.
    pub fn check_commit(&self, session: SessionId, request: &CommitRequest) -> Result<(), RpcError> {
        self.ensure_writable(Datastore::Running, session)?;
        self.ensure_writable(Datastore::Candidate, session)?;
        match (&self.pending, &request.persist_id) {
            (None, None) => Ok(()),
            (None, Some(_)) => {
                Err(RpcError::protocol(Tag::InvalidValue, "no persistent confirmed commit is in progress")
                    .info("bad-element", "persist-id"))
            }
            (Some(pending), Some(id)) if pending.persist.as_ref() == Some(id) => Ok(()),
            (Some(_), Some(_)) => Err(RpcError::protocol(
                Tag::InvalidValue,
                "persist-id is not that of the confirmed commit in progress",
            )
            .info("bad-element", "persist-id")),
            (Some(pending), None) if pending.persist.is_none() && pending.owner == session => Ok(()),
            (Some(pending), None) => {
                Err(RpcError::protocol(Tag::InUse, "another confirmed commit is in progress")
                    .info("session-id", pending.owner.to_string()))
            }
        }
    }

    /// Copies the candidate to running. Call [`Self::check_commit`] first.
    pub fn commit(&mut self, session: SessionId, request: CommitRequest) -> CommitOutcome {
        let before = std::mem::take(&mut self.running);
        self.running = match self.candidate.take() {
            Some(candidate) => candidate.config,
            None => before.clone(),
        };
        let pending = self.pending.take();
        let Some(after) = request.confirmed else {
            return CommitOutcome { confirming: pending.is_some(), deadline: None };
        };
        self.last_commit_id += 1;
        let (before, persist) = match pending {
            // A follow-up commit extends the timeout. A rollback still restores the state before the first commit.
            Some(first) => (first.rollback_config, request.persist.or(first.persist)),
            None => (before, request.persist),
        };
        self.pending = Some(PendingCommit {
            rollback_config: before,
            owner: session,
            persist,
            commit_id: self.last_commit_id,
        });
        CommitOutcome {
            confirming: false,
            deadline: Some(ConfirmDeadline { commit_id: self.last_commit_id, timeout: after }),
        }
    }

    /// `<cancel-commit>` (RFC 6241 section 8.4.4.1).
    pub fn cancel_commit(&mut self, session: SessionId, persist_id: Option<&str>) -> Result<(), RpcError> {
        match &self.pending {
            None => {
                return Err(RpcError::protocol(Tag::OperationFailed, "no confirmed commit is in progress"));
            }
            Some(pending) => match (pending.persist.as_deref(), persist_id) {
                (Some(expected), Some(given)) if expected == given => {}
                (None, None) if pending.owner == session => {}
                (None, None) => {
                    return Err(RpcError::protocol(
                        Tag::OperationFailed,
                        "the confirmed commit is another session's",
                    ));
                }
                _ => {
                    return Err(RpcError::protocol(
                        Tag::InvalidValue,
                        "persist-id is not that of the confirmed commit in progress",
                    )
                    .info("bad-element", "persist-id"));
                }
            },
        }
        self.roll_back();
        Ok(())
    }

    /// Ends a confirmed commit whose timeout has passed. Returns whether it was rolled back.
    pub fn expire_commit(&mut self, commit_id: u64) -> bool {
        let expired = self.pending.as_ref().is_some_and(|pending| pending.commit_id == commit_id);
        if expired {
            self.roll_back();
        }
        expired
    }

    /// Releases the locks of a session that ended and rolls back its confirmed commit unless that persists. A candidate
    /// that the session had locked is discarded unless `keep_candidate`. Returns whether a commit was rolled back.
    pub fn end_session(&mut self, session: SessionId, keep_candidate: bool) -> bool {
        let owned = self
            .pending
            .as_ref()
            .is_some_and(|pending| pending.owner == session && pending.persist.is_none());
        if owned {
            self.roll_back();
        }
        for name in [Datastore::Running, Datastore::Candidate, Datastore::Startup] {
            if self.locks[name as usize] == Some(session) {
                self.locks[name as usize] = None;
                if name == Datastore::Candidate && !keep_candidate {
                    self.candidate = None;
                }
            }
        }
        owned
    }

    /// Resets the datastores after a reboot: this running configuration, no candidate, locks or pending commit.
    pub fn reboot(&mut self, running: Container) {
        *self = Self {
            startup: self.startup.take(),
            last_commit_id: self.last_commit_id,
            ..Self::new(running, None)
        };
    }

    fn roll_back(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.running = pending.rollback_config;
        }
    }
}

/// Finds a datastore by the name of its XML element, if the capabilities include it.
pub fn find(name: &str, capabilities: &Capabilities) -> Option<Datastore> {
    match name {
        "running" => Some(Datastore::Running),
        "candidate" if capabilities.candidate => Some(Datastore::Candidate),
        "startup" if capabilities.startup => Some(Datastore::Startup),
        _ => None,
    }
}
