//! The datastores of one switch: running, candidate, startup, their locks and the confirmed commit.
//!
//! The module has no clock and does no IO. A confirmed commit returns a [`Deadline`]. When its timeout has
//! passed, the caller calls [`Datastores::expire`] with the commit id.

use std::time::Duration;

use crate::model::edit::{self, Edit, OnError, Operation};
use crate::model::tree::Container;
use crate::netconf::error::{RpcError, Tag};
use crate::topology::Capabilities;

/// A NETCONF session-id (RFC 6241 section 8.1).
pub type SessionId = u32;

/// A datastore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// The active configuration.
    Running,
    /// The working copy that `<commit>` makes active.
    Candidate,
    /// The configuration that a reboot loads.
    Startup,
}

impl Name {
    /// The name of the XML element.
    pub fn as_str(self) -> &'static str {
        match self {
            Name::Running => "running",
            Name::Candidate => "candidate",
            Name::Startup => "startup",
        }
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
pub struct Deadline {
    /// Identifies the commit to [`Datastores::expire`].
    pub ticket: u64,
    /// Time from now until the rollback.
    pub after: Duration,
}

#[derive(Debug)]
struct Pending {
    before: Container,
    owner: SessionId,
    persist: Option<String>,
    ticket: u64,
}

/// An edit that was applied to the candidate.
#[derive(Debug)]
pub struct Applied {
    /// The edited data nodes.
    pub edits: Vec<Edit>,
    /// The `<rpc>` message that contained the edit.
    pub xml: String,
}

#[derive(Debug)]
struct Candidate {
    config: Container,
    edits: Vec<Applied>,
}

/// The result of a successful commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Whether it confirmed a pending commit.
    pub confirming: bool,
    /// The deadline of its confirmation; absent for a commit that needs none.
    pub deadline: Option<Deadline>,
}

/// All datastores of a switch.
#[derive(Debug)]
pub struct Datastores {
    running: Container,
    /// `None` while it equals running.
    candidate: Option<Candidate>,
    startup: Option<Container>,
    locks: [Option<SessionId>; 3],
    pending: Option<Pending>,
    tickets: u64,
}

impl Datastores {
    /// Creates unlocked datastores with this content.
    pub fn new(running: Container, startup: Option<Container>) -> Self {
        Self { running, candidate: None, startup, locks: [None; 3], pending: None, tickets: 0 }
    }

    /// The content of a datastore. An absent startup is empty.
    pub fn get(&self, name: Name) -> Container {
        match name {
            Name::Running => self.running.clone(),
            Name::Candidate => {
                self.candidate.as_ref().map_or_else(|| self.running.clone(), |c| c.config.clone())
            }
            Name::Startup => self.startup.clone().unwrap_or_default(),
        }
    }

    /// The running configuration.
    pub fn running(&self) -> &Container {
        &self.running
    }

    /// Running without an unconfirmed commit. A switch without a startup datastore loads it after a reboot.
    pub fn durable(&self) -> &Container {
        self.pending.as_ref().map_or(&self.running, |pending| &pending.before)
    }

    /// The startup configuration, if one was saved.
    pub fn startup(&self) -> Option<&Container> {
        self.startup.as_ref()
    }

    /// The edits of the candidate since it last equalled running.
    pub fn candidate_edits(&self) -> &[Applied] {
        self.candidate.as_ref().map_or(&[], |candidate| &candidate.edits)
    }

    /// Whether a confirmed commit awaits its confirmation.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// `<lock>` (RFC 6241 section 7.5).
    pub fn lock(&mut self, name: Name, session: SessionId) -> Result<(), RpcError> {
        let denied = |holder: SessionId, why: &str| {
            Err(RpcError::protocol(Tag::LockDenied, format!("lock of {} denied: {why}", name.as_str()))
                .info("session-id", holder.to_string()))
        };
        if let Some(holder) = self.locks[name as usize] {
            return denied(holder, "it is locked");
        }
        if name == Name::Candidate && self.candidate.is_some() {
            return denied(0, "it was modified and neither committed nor discarded");
        }
        if name == Name::Running
            && let Some(pending) = self.pending.as_ref().filter(|pending| pending.owner != session)
        {
            return denied(pending.owner, "a confirmed commit is in progress");
        }
        self.locks[name as usize] = Some(session);
        Ok(())
    }

    /// `<unlock>` (RFC 6241 section 7.6). Unlocking the candidate discards its changes (section 8.3.5.2).
    pub fn unlock(&mut self, name: Name, session: SessionId) -> Result<(), RpcError> {
        if self.locks[name as usize] != Some(session) {
            return Err(RpcError::protocol(
                Tag::OperationFailed,
                format!("this session does not hold the lock of {}", name.as_str()),
            ));
        }
        self.locks[name as usize] = None;
        if name == Name::Candidate {
            self.candidate = None;
        }
        Ok(())
    }

    /// Fails with `in-use` if another session has locked the datastore.
    pub fn writable(&self, name: Name, session: SessionId) -> Result<(), RpcError> {
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
    pub fn edited(
        &self,
        name: Name,
        edits: &[Edit],
        default: Operation,
        on_error: OnError,
    ) -> (Container, Vec<RpcError>) {
        let mut config = self.get(name);
        let errors = edit::apply(&mut config, edits, default, on_error).err().unwrap_or_default();
        (config, errors)
    }

    /// Sets the content of a datastore. The candidate remembers `edit`.
    pub fn put(&mut self, name: Name, config: Container, edit: Option<Applied>) {
        match name {
            Name::Running => self.running = config,
            Name::Startup => self.startup = Some(config),
            Name::Candidate => {
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
        self.writable(Name::Candidate, session)?;
        self.candidate = None;
        Ok(())
    }

    /// Checks the preconditions of a commit (RFC 6241 sections 8.3.4.1 and 8.4): the locks and, during a confirmed
    /// commit, the `persist-id` or session.
    pub fn may_commit(&self, session: SessionId, request: &CommitRequest) -> Result<(), RpcError> {
        self.writable(Name::Running, session)?;
        self.writable(Name::Candidate, session)?;
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

    /// Copies the candidate to running. Call [`Self::may_commit`] first.
    pub fn commit(&mut self, session: SessionId, request: CommitRequest) -> Committed {
        let before = std::mem::take(&mut self.running);
        self.running = match self.candidate.take() {
            Some(candidate) => candidate.config,
            None => before.clone(),
        };
        let pending = self.pending.take();
        let Some(after) = request.confirmed else {
            return Committed { confirming: pending.is_some(), deadline: None };
        };
        self.tickets += 1;
        let (before, persist) = match pending {
            // A follow-up commit extends the timeout. A rollback still restores the state before the first commit.
            Some(first) => (first.before, request.persist.or(first.persist)),
            None => (before, request.persist),
        };
        self.pending = Some(Pending { before, owner: session, persist, ticket: self.tickets });
        Committed { confirming: false, deadline: Some(Deadline { ticket: self.tickets, after }) }
    }

    /// `<cancel-commit>` (RFC 6241 section 8.4.4.1).
    pub fn cancel(&mut self, session: SessionId, persist_id: Option<&str>) -> Result<(), RpcError> {
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
    pub fn expire(&mut self, ticket: u64) -> bool {
        let due = self.pending.as_ref().is_some_and(|pending| pending.ticket == ticket);
        if due {
            self.roll_back();
        }
        due
    }

    /// Releases the locks of a session that ended and rolls back its confirmed commit unless that persists. A candidate
    /// that the session had locked is discarded unless `keeps_candidate`. Returns whether a commit was rolled back.
    pub fn end_session(&mut self, session: SessionId, keeps_candidate: bool) -> bool {
        let theirs = self
            .pending
            .as_ref()
            .is_some_and(|pending| pending.owner == session && pending.persist.is_none());
        if theirs {
            self.roll_back();
        }
        for name in [Name::Running, Name::Candidate, Name::Startup] {
            if self.locks[name as usize] == Some(session) {
                self.locks[name as usize] = None;
                if name == Name::Candidate && !keeps_candidate {
                    self.candidate = None;
                }
            }
        }
        theirs
    }

    /// Resets the datastores after a reboot: this running configuration, no candidate, locks or pending commit.
    pub fn reboot(&mut self, running: Container) {
        *self = Self { startup: self.startup.take(), tickets: self.tickets, ..Self::new(running, None) };
    }

    fn roll_back(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.running = pending.before;
        }
    }
}

/// Finds a datastore by the name of its XML element, if the capabilities include it.
pub fn named(name: &str, capabilities: &Capabilities) -> Option<Name> {
    match name {
        "running" => Some(Name::Running),
        "candidate" if capabilities.candidate => Some(Name::Candidate),
        "startup" if capabilities.startup => Some(Name::Startup),
        _ => None,
    }
}
