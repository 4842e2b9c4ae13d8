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
    fn times(&mut self) -> Option<&mut u32> {
        match self {
            Fault::LockDenied { times }
            | Fault::DropBeforeCommit { times }
            | Fault::DropAfterCommit { times }
            | Fault::LoseConfirm { times }
            | Fault::Slow { times, .. }
            | Fault::RejectEdit(RejectEdit { times, .. }) => times.as_mut(),
            Fault::Unreachable {} | Fault::Clear {} => None,
        }
    }
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
        (!errors.is_empty()).then_some(errors)
    }
}
