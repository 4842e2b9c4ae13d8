//! Faults that a switch can be told to have.

use serde::{Deserialize, Serialize};

use crate::model::edit::{self, Edit};
use crate::netconf::error::{RpcError, Tag};

/// A fault. `times`: how often it strikes; without it, until the faults are cleared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// `<lock>` is denied, as if a person at the console held it.
    LockDenied {
        /// How often.
        #[serde(default)]
        times: Option<u32>,
    },
    /// The switch refuses a configuration.
    RejectEdit(RejectEdit),
    /// The session is lost when `<commit>` arrives; nothing is committed.
    DropBeforeCommit {
        /// How often.
        #[serde(default)]
        times: Option<u32>,
    },
    /// The session is lost after `<commit>` was done, before its reply.
    DropAfterCommit {
        /// How often.
        #[serde(default)]
        times: Option<u32>,
    },
    /// The commit that confirms another is lost with its session.
    LoseConfirm {
        /// How often.
        #[serde(default)]
        times: Option<u32>,
    },
    /// The connection is lost at an operation, `edit-config` or any other by its name: before it has an effect, or
    /// after that and before its reply.
    Drop {
        /// Its name; any when absent.
        #[serde(default)]
        operation: Option<String>,
        /// Before or after the effect.
        #[serde(default)]
        when: When,
        /// How often.
        #[serde(default)]
        times: Option<u32>,
    },
    /// An operation is never answered, and nothing after it on that session; the connection stays open.
    Hang {
        /// Its name; any when absent.
        #[serde(default)]
        operation: Option<String>,
        /// Before or after the effect.
        #[serde(default)]
        when: When,
        /// How often.
        #[serde(default)]
        times: Option<u32>,
    },
    /// New connections are accepted, and nothing is ever said on them.
    HalfOpen {},
    /// Another manager holds a lock: it is denied to all, and edits are refused as in use.
    Locked {
        /// `running` or `candidate`; both when absent.
        #[serde(default)]
        datastore: Option<String>,
        /// Its session; one that doesn't exist here.
        #[serde(default = "another_session")]
        session: u32,
    },
    /// Access control (RFC 8341) denies edits below a place, or an operation.
    #[serde(rename_all = "camelCase")]
    AccessDenied {
        /// The names from the top, such as `interfaces/interface`.
        #[serde(default)]
        subtree: Option<String>,
        /// The name of an operation.
        #[serde(default)]
        operation: Option<String>,
        /// The place isn't shown either.
        #[serde(default)]
        hidden: bool,
    },
    /// Notifications are sent before the reply to what caused them.
    NotificationsFirst {},
    /// `<hello>` announces these instead of what the switch can do.
    Announce {
        /// All of them, as in the topology.
        capabilities: Box<crate::topology::Capabilities>,
    },
    /// A confirmed commit is done for good: it is never rolled back.
    IgnoreConfirmed {},
    /// The candidate of a session that ends is kept. Nobody gets its lock until someone discards or commits it.
    KeepCandidate {},
    /// Of several siblings that a subtree filter names by their keys, only the first is answered.
    FirstSiblingOnly {},
    /// Edits are answered with `<ok/>` and not done.
    IgnoreEdit {
        /// Those whose XML contains this text; all when absent.
        #[serde(default)]
        contains: Option<String>,
        /// How often.
        #[serde(default)]
        times: Option<u32>,
    },
    /// Every operation takes this much longer.
    Slow {
        /// Milliseconds.
        ms: u64,
        /// How often.
        #[serde(default)]
        times: Option<u32>,
    },
    /// Sessions are lost and none can be opened.
    Unreachable {},
    /// Not a fault: ends all of them.
    Clear {},
}

/// On which side of an operation's effect something happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// It is not done.
    #[default]
    Before,
    /// It is done.
    After,
}

fn another_session() -> u32 {
    4_000_000
}

/// Which configurations are refused, when and how.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RejectEdit {
    /// Edits whose XML contains this text.
    pub contains: Option<String>,
    /// Edits that name this VLAN, by itself or in a range.
    pub vlan: Option<u16>,
    /// `error-message`.
    pub message: Option<String>,
    /// `error-tag`; `operation-failed` when absent.
    pub tag: Option<Tag>,
    /// When it is noticed.
    pub at: Stage,
    /// Don't say where: no `error-path`.
    pub without_path: bool,
    /// Further errors in the same reply.
    pub also: Vec<Tag>,
    /// How often.
    pub times: Option<u32>,
}

/// When a refused configuration is noticed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// At `<edit-config>`.
    #[default]
    Edit,
    /// At `<validate>`, and at `<commit>` if nobody validates.
    Validate,
    /// At `<commit>`.
    Commit,
}

impl Fault {
    /// Whether an edit in this message is not done.
    pub fn ignores(&self, message: &str) -> bool {
        match self {
            Fault::IgnoreEdit { contains, .. } => contains.as_ref().is_none_or(|text| message.contains(text)),
            _ => false,
        }
    }

    fn times(&mut self) -> Option<&mut u32> {
        match self {
            Fault::LockDenied { times }
            | Fault::DropBeforeCommit { times }
            | Fault::DropAfterCommit { times }
            | Fault::LoseConfirm { times }
            | Fault::Drop { times, .. }
            | Fault::Hang { times, .. }
            | Fault::IgnoreEdit { times, .. }
            | Fault::Slow { times, .. }
            | Fault::RejectEdit(RejectEdit { times, .. }) => times.as_mut(),
            Fault::Unreachable {}
            | Fault::HalfOpen {}
            | Fault::Locked { .. }
            | Fault::AccessDenied { .. }
            | Fault::NotificationsFirst {}
            | Fault::Announce { .. }
            | Fault::IgnoreConfirmed {}
            | Fault::KeepCandidate {}
            | Fault::FirstSiblingOnly {}
            | Fault::Clear {} => None,
        }
    }
}

/// How a connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// It is cut.
    Lost,
    /// It stays, and nothing comes.
    Silent,
}

/// The faults that a switch has at present.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

/// One edit as a refusal looks at it.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The edit.
    pub edits: &'a [Edit],
    /// The message it came in.
    pub xml: &'a str,
}

impl Faults {
    /// Adds a fault, or clears all.
    pub fn add(&mut self, fault: Fault) {
        match fault {
            Fault::Clear {} => self.0.clear(),
            fault => self.0.push(fault),
        }
    }

    /// All present faults.
    pub fn list(&self) -> &[Fault] {
        &self.0
    }

    /// Whether the switch can be reached.
    pub fn unreachable(&self) -> bool {
        self.0.contains(&Fault::Unreachable {})
    }

    /// Whether there is such a fault; it isn't counted.
    pub fn any(&self, which: impl Fn(&Fault) -> bool) -> bool {
        self.0.iter().any(which)
    }

    /// What `<hello>` announces instead.
    pub fn announced(&self) -> Option<&crate::topology::Capabilities> {
        self.0.iter().rev().find_map(|fault| match fault {
            Fault::Announce { capabilities } => Some(&**capabilities),
            _ => None,
        })
    }

    /// The session of another manager that holds the lock of a datastore.
    pub fn lock_holder(&self, store: &str) -> Option<u32> {
        self.0.iter().find_map(|fault| match fault {
            Fault::Locked { datastore, session } if datastore.as_ref().is_none_or(|d| d == store) => {
                Some(*session)
            }
            _ => None,
        })
    }

    /// The places that may not be edited, and those that aren't shown.
    pub fn denied(&self, hidden_only: bool) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(move |fault| match fault {
            Fault::AccessDenied { subtree, hidden, .. } if *hidden || !hidden_only => subtree.as_deref(),
            _ => None,
        })
    }

    /// How the connection breaks at an operation: lost, or silent.
    pub fn breaks(&mut self, operation: &str, at: When) -> Option<Break> {
        let here = |name: &Option<String>| name.as_ref().is_none_or(|name| name == operation);
        self.strike(|fault| match fault {
            Fault::Drop { operation, when, .. } if *when == at && here(operation) => Some(Break::Lost),
            Fault::Hang { operation, when, .. } if *when == at && here(operation) => Some(Break::Silent),
            _ => None,
        })
    }

    /// Strikes the first fault that `which` accepts, and counts.
    pub fn strike<T>(&mut self, which: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        let (at, result) = self.0.iter().enumerate().find_map(|(at, fault)| Some((at, which(fault)?)))?;
        if let Some(times) = self.0[at].times() {
            *times = times.saturating_sub(1);
            if *times == 0 {
                self.0.remove(at);
            }
        }
        Some(result)
    }

    /// The errors with which what was `seen` is refused at a stage.
    pub fn refusal(&mut self, stages: &[Stage], seen: &[Seen<'_>]) -> Option<Vec<RpcError>> {
        self.strike(|fault| match fault {
            Fault::RejectEdit(reject) if stages.contains(&reject.at) => reject.errors(seen),
            _ => None,
        })
    }
}

impl RejectEdit {
    fn errors(&self, seen: &[Seen<'_>]) -> Option<Vec<RpcError>> {
        let mut errors = Vec::new();
        for seen in seen {
            if self.contains.as_ref().is_some_and(|text| !seen.xml.contains(text.as_str())) {
                continue;
            }
            let error = || {
                RpcError::application(
                    self.tag.clone().unwrap_or(Tag::OperationFailed),
                    self.message
                        .clone()
                        .unwrap_or_else(|| "the switch refuses this configuration".to_owned()),
                )
            };
            match self.vlan {
                None => errors.push(error()),
                Some(vlan) => {
                    for path in edit::places_of_vlan(seen.edits, vlan) {
                        errors.push(if self.without_path { error() } else { error().at(path) });
                    }
                }
            }
        }
        if self.without_path {
            errors.truncate(1);
        }
        if !errors.is_empty() {
            let further = |tag: &Tag| RpcError::application(tag.clone(), "this is wrong with it too");
            errors.extend(self.also.iter().map(further));
        }
        (!errors.is_empty()).then_some(errors)
    }
}
