//! Fault injection: the faults that a test can give a switch.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::datastores::CommitRequest;
use crate::model::edit::{self, Edit};
use crate::netconf::error::{RpcError, Tag};

/// A fault. `times` is the number of occurrences; without it, the fault lasts until the faults are cleared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// `<lock>` is denied, as if an operator at the console held the lock.
    LockDenied {
        /// Number of occurrences; unlimited if absent.
        times: Option<u32>,
    },
    /// The switch rejects a configuration.
    RejectEdit(RejectEdit),
    /// The session is lost when `<commit>` arrives; nothing is committed.
    DropBeforeCommit {
        /// Number of occurrences; unlimited if absent.
        times: Option<u32>,
    },
    /// The session is lost after `<commit>` took effect and before its reply.
    DropAfterCommit {
        /// Number of occurrences; unlimited if absent.
        times: Option<u32>,
    },
    /// The session is lost when the confirming `<commit>` arrives; the commit is not confirmed.
    LoseConfirm {
        /// Number of occurrences; unlimited if absent.
        times: Option<u32>,
    },
    /// The connection is lost at an operation: before its effect, or after its effect and before its reply.
    Drop {
        /// Name of the operation, such as `edit-config`; any if absent.
        operation: Option<String>,
        /// Whether the fault occurs before or after the effect.
        #[serde(default)]
        when: When,
        /// Number of occurrences; unlimited if absent.
        times: Option<u32>,
    },
    /// An operation and all later ones of the session get no reply; the connection stays open.
    Hang {
        /// Name of the operation, such as `edit-config`; any if absent.
        operation: Option<String>,
        /// Whether the fault occurs before or after the effect.
        #[serde(default)]
        when: When,
        /// Number of occurrences; unlimited if absent.
        times: Option<u32>,
    },
    /// The switch accepts TCP connections and sends nothing on them.
    HalfOpen {},
    /// Another manager holds a lock: `<lock>` fails with `lock-denied`, edits fail with `in-use`.
    Locked {
        /// `running` or `candidate`; both if absent.
        datastore: Option<String>,
        /// Session-id of the other manager; no session of the switch has it.
        #[serde(default = "foreign_session")]
        session: u32,
    },
    /// Access control (RFC 8341) denies an operation, or edits of a subtree.
    #[serde(rename_all = "camelCase")]
    AccessDenied {
        /// Node names from the root, such as `interfaces/interface`.
        subtree: Option<String>,
        /// Name of the denied operation.
        operation: Option<String>,
        /// Whether reads omit the subtree too.
        #[serde(default)]
        hidden: bool,
    },
    /// Notifications are sent before the reply to the operation that caused them.
    NotificationsFirst {},
    /// `<hello>` announces these capabilities instead of the real ones.
    Announce {
        /// All capabilities, as in the topology.
        capabilities: Box<crate::topology::Capabilities>,
    },
    /// A confirmed commit is treated as a plain commit: it is never rolled back.
    IgnoreConfirmed {},
    /// The candidate survives the end of its session. `<lock>` is denied until it is discarded or committed.
    KeepCandidate {},
    /// Of several siblings that a subtree filter selects by key, only the first is returned.
    FirstSiblingOnly {},
    /// Errors are written otherwise than RFC 6241 has it.
    OddErrors(OddErrors),
    /// A datastore has no locks: `<lock>` fails with `operation-not-supported`.
    LockUnsupported {
        /// `running` or `candidate`.
        datastore: String,
    },
    /// The NETCONF subsystem is refused.
    NoSubsystem {},
    /// A subtree filter with several elements at its top is refused.
    OneRootPerFilter {},
    /// An edit that removes a leaf without its value is refused.
    RemoveNeedsValue {},
    /// Edits are answered with `<ok/>` and have no effect.
    IgnoreEdit {
        /// Only edits whose XML contains this text; all if absent.
        contains: Option<String>,
        /// Number of occurrences; unlimited if absent.
        times: Option<u32>,
    },
    /// Each operation is delayed. It takes effect even if its session ends meanwhile.
    Slow {
        /// Delay in milliseconds.
        ms: u64,
        /// Name of the delayed operation, such as `commit`; any if absent.
        operation: Option<String>,
        /// Number of occurrences; unlimited if absent.
        times: Option<u32>,
    },
    /// A confirmed commit is rolled back after this time, whatever `<confirm-timeout>` says.
    ConfirmTimeout {
        /// Time in milliseconds.
        ms: u64,
    },
    /// A longer `<confirm-timeout>` is refused.
    MaxConfirmTimeout {
        /// The longest accepted one, in seconds.
        seconds: u64,
    },
    /// `<get-config>` of running shows a change only after this time.
    LateRunning {
        /// Time in milliseconds.
        ms: u64,
        /// Whether it shows no configuration at all until then.
        #[serde(default)]
        empty: bool,
    },
    /// `<get-config>` answers a long text in the place of the configuration.
    LongAnswer(LongAnswer),
    /// Edits change the names of VLANs.
    ChangeNames {
        /// How names are changed.
        to: NameChange,
    },
    /// The data plane drops frames that the configuration lets pass.
    DropFrames {
        /// The VLAN of the frames; any if absent.
        vlan: Option<u16>,
        /// The port that neither receives nor sends them; all if absent.
        port: Option<String>,
    },
    /// The data plane has another native VLAN on a port than the configuration: it sends the frames of this VLAN
    /// untagged, if it carries it, and takes untagged frames into it.
    NativeVlan {
        /// The VLAN.
        vlan: u16,
        /// The port.
        port: String,
    },
    /// The data plane drops packets that are too large for a port, in both directions.
    SmallMtu {
        /// The port.
        port: String,
        /// The length of the largest packet that passes, in bytes.
        bytes: u32,
    },
    /// The cables of two ports are exchanged: each has the neighbour of the other.
    SwapCables {
        /// The ports.
        ports: [String; 2],
    },
    /// Not a fault: the switch has learnt a MAC address.
    Learn {
        /// The address. The switch shows it as it is written here.
        mac: String,
        /// The VLAN.
        vlan: u16,
        /// The port or link aggregation.
        port: String,
        /// So many addresses, of which this one, of six bytes with colons, is the first; one if absent.
        number: Option<u32>,
    },
    /// All sessions are lost and no connection is accepted.
    Unreachable {},
    /// Not a fault: clears all faults.
    Clear {},
}

/// The form of errors that differs from RFC 6241.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OddErrors {
    /// Errors stand in `<commit-results><routing-engine>`.
    pub nested: bool,
    /// `<routing-engine>` is not closed.
    pub unclosed: bool,
    /// Errors have no `error-tag` and no `error-info`.
    pub untagged: bool,
}

/// The time of a fault relative to the effect of an operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// The operation has no effect.
    #[default]
    Before,
    /// The operation has taken effect.
    After,
}

/// How a switch changes the names of VLANs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NameChange {
    /// To upper case.
    UpperCase,
    /// To their first eight characters.
    EightCharacters,
}

impl NameChange {
    /// The name that the switch stores.
    pub fn apply(self, name: &str) -> String {
        match self {
            Self::UpperCase => name.to_uppercase(),
            Self::EightCharacters => name.chars().take(8).collect(),
        }
    }
}

fn foreign_session() -> u32 {
    4_000_000
}

/// A text of any length.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LongAnswer {
    /// The start.
    pub before: String,
    /// What is repeated. `{}` in it stands for the number of the repetition.
    pub repeated: String,
    /// The number of repetitions.
    pub times: u64,
    /// The end.
    pub after: String,
}

impl LongAnswer {
    /// The text.
    pub fn text(&self) -> String {
        let mut text = self.before.clone();
        for number in 0..self.times {
            text.push_str(&self.repeated.replace("{}", &number.to_string()));
        }
        text + &self.after
    }
}

/// Selects the configurations that are rejected, the time and the errors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RejectEdit {
    /// Reject edits whose XML contains this text.
    pub contains: Option<String>,
    /// Reject edits that name this VLAN, as an id or within a range.
    pub vlan: Option<u16>,
    /// `error-message`.
    pub message: Option<String>,
    /// `error-tag`; `operation-failed` if absent.
    pub tag: Option<Tag>,
    /// The stage at which the configuration is rejected.
    pub at: Stage,
    /// Whether to omit `error-path`.
    pub without_path: bool,
    /// Tags of further errors in the same reply.
    pub also: Vec<Tag>,
    /// Number of occurrences; unlimited if absent.
    pub times: Option<u32>,
}

/// The stage at which a configuration is rejected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// At `<edit-config>`.
    #[default]
    Edit,
    /// At `<validate>`, or at `<commit>` without a preceding `<validate>`.
    Validate,
    /// At `<commit>`.
    Commit,
}

impl Fault {
    /// Whether the fault ignores the edit in this message.
    pub fn ignores(&self, message: &str) -> bool {
        match self {
            Fault::IgnoreEdit { contains, .. } => contains.as_ref().is_none_or(|text| message.contains(text)),
            _ => false,
        }
    }

    /// Whether a port drops the frames of a VLAN.
    pub fn drops(&self, on: &str, id: u16) -> bool {
        match self {
            Fault::DropFrames { vlan, port } => {
                vlan.is_none_or(|vlan| vlan == id) && port.as_ref().is_none_or(|port| port == on)
            }
            _ => false,
        }
    }

    /// Whether it concerns the data plane.
    pub fn is_of_forwarding(&self) -> bool {
        matches!(
            self,
            Self::DropFrames { .. }
                | Self::NativeVlan { .. }
                | Self::SmallMtu { .. }
                | Self::SwapCables { .. }
        )
    }

    /// The native VLAN that the data plane has on a port.
    pub fn native_vlan(&self, on: &str) -> Option<u16> {
        match self {
            Self::NativeVlan { vlan, port } if port == on => Some(*vlan),
            _ => None,
        }
    }

    /// The length of the largest packet that passes a port, in bytes.
    pub fn small_mtu(&self, on: &str) -> Option<u32> {
        match self {
            Self::SmallMtu { port, bytes } if port == on => Some(*bytes),
            _ => None,
        }
    }

    /// The port whose cable is in this one.
    pub fn swapped(&self, on: &str) -> Option<&str> {
        match self {
            Self::SwapCables { ports: [one, other] } if one == on => Some(other),
            Self::SwapCables { ports: [other, one] } if one == on => Some(other),
            _ => None,
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
            | Fault::OddErrors(_)
            | Fault::LockUnsupported { .. }
            | Fault::NoSubsystem {}
            | Fault::OneRootPerFilter {}
            | Fault::RemoveNeedsValue {}
            | Fault::ConfirmTimeout { .. }
            | Fault::MaxConfirmTimeout { .. }
            | Fault::LateRunning { .. }
            | Fault::LongAnswer(_)
            | Fault::ChangeNames { .. }
            | Fault::DropFrames { .. }
            | Fault::NativeVlan { .. }
            | Fault::SmallMtu { .. }
            | Fault::SwapCables { .. }
            | Fault::Learn { .. }
            | Fault::Clear {} => None,
        }
    }
}

/// A fault of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionFault {
    /// The connection is closed.
    Dropped,
    /// The connection stays open and the switch sends nothing.
    Hung,
}

/// The active faults of a switch.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

/// A submitted edit, as faults match it.
#[derive(Debug, Clone, Copy)]
pub struct SubmittedEdit<'a> {
    /// The edit.
    pub edits: &'a [Edit],
    /// The `<rpc>` message that contained it.
    pub xml: &'a str,
}

impl Faults {
    /// Adds a fault, or clears all with [`Fault::Clear`].
    pub fn add(&mut self, fault: Fault) {
        match fault {
            Fault::Clear {} => self.0.clear(),
            fault => self.0.push(fault),
        }
    }

    /// All active faults.
    pub fn list(&self) -> &[Fault] {
        &self.0
    }

    /// Whether [`Fault::Unreachable`] is active.
    pub fn unreachable(&self) -> bool {
        self.0.contains(&Fault::Unreachable {})
    }

    /// Whether a fault matches, without counting an occurrence.
    pub fn any(&self, which: impl Fn(&Fault) -> bool) -> bool {
        self.0.iter().any(which)
    }

    /// The capabilities that `<hello>` announces instead of the real ones.
    pub fn announced_capabilities(&self) -> Option<&crate::topology::Capabilities> {
        self.0.iter().rev().find_map(|fault| match fault {
            Fault::Announce { capabilities } => Some(&**capabilities),
            _ => None,
        })
    }

    /// How the switch changes the names of VLANs.
    pub fn name_change(&self) -> Option<NameChange> {
        self.0.iter().find_map(|fault| match fault {
            Fault::ChangeNames { to } => Some(*to),
            _ => None,
        })
    }

    /// What reads answer in the place of the configuration.
    pub fn long_answer(&self) -> Option<&LongAnswer> {
        self.0.iter().find_map(|fault| match fault {
            Fault::LongAnswer(answer) => Some(answer),
            _ => None,
        })
    }

    /// The time after which reads show a change of running, and whether they show nothing until then.
    pub fn running_delay(&self) -> Option<(Duration, bool)> {
        self.0.iter().find_map(|fault| match fault {
            Fault::LateRunning { ms, empty } => Some((Duration::from_millis(*ms), *empty)),
            _ => None,
        })
    }

    /// Applies the limits of confirmed commits to a `<commit>`.
    pub fn limit_confirm_timeout(&self, mut request: CommitRequest) -> Result<CommitRequest, RpcError> {
        let Some(timeout) = &mut request.confirmed else { return Ok(request) };
        for fault in &self.0 {
            match fault {
                Fault::ConfirmTimeout { ms } => *timeout = Duration::from_millis(*ms),
                Fault::MaxConfirmTimeout { seconds } if *timeout > Duration::from_secs(*seconds) => {
                    let message = format!("confirm-timeout: at most {seconds} s");
                    let error = RpcError::application(Tag::InvalidValue, message);
                    return Err(error.info("bad-element", "confirm-timeout"));
                }
                _ => {}
            }
        }
        Ok(request)
    }

    /// The session-id of another manager that holds the lock of a datastore.
    pub fn lock_holder(&self, store: &str) -> Option<u32> {
        self.0.iter().find_map(|fault| match fault {
            Fault::Locked { datastore, session } if datastore.as_ref().is_none_or(|d| d == store) => {
                Some(*session)
            }
            _ => None,
        })
    }

    /// The subtrees that may not be edited; with `hidden_only`, those that reads omit.
    pub fn denied_subtrees(&self, hidden_only: bool) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(move |fault| match fault {
            Fault::AccessDenied { subtree, hidden, .. } if *hidden || !hidden_only => subtree.as_deref(),
            _ => None,
        })
    }

    /// Triggers the connection fault of an operation, if one is active.
    pub fn connection_fault(&mut self, operation: &str, at: When) -> Option<ConnectionFault> {
        let here = |name: &Option<String>| name.as_ref().is_none_or(|name| name == operation);
        self.trigger(|fault| match fault {
            Fault::Drop { operation, when, .. } if *when == at && here(operation) => {
                Some(ConnectionFault::Dropped)
            }
            Fault::Hang { operation, when, .. } if *when == at && here(operation) => {
                Some(ConnectionFault::Hung)
            }
            _ => None,
        })
    }

    /// Triggers the first fault that `which` matches and counts the occurrence.
    pub fn trigger<T>(&mut self, which: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        let (at, result) = self.0.iter().enumerate().find_map(|(at, fault)| Some((at, which(fault)?)))?;
        if let Some(times) = self.0[at].times() {
            *times = times.saturating_sub(1);
            if *times == 0 {
                self.0.remove(at);
            }
        }
        Some(result)
    }

    /// Triggers a rejection of the submitted edits at these stages and returns its errors.
    pub fn rejection(&mut self, stages: &[Stage], submitted: &[SubmittedEdit<'_>]) -> Option<Vec<RpcError>> {
        self.trigger(|fault| match fault {
            Fault::RejectEdit(reject) if stages.contains(&reject.at) => reject.errors(submitted),
            _ => None,
        })
    }
}

impl RejectEdit {
    fn errors(&self, submitted: &[SubmittedEdit<'_>]) -> Option<Vec<RpcError>> {
        let mut errors = Vec::new();
        for submitted in submitted {
            if self.contains.as_ref().is_some_and(|text| !submitted.xml.contains(text.as_str())) {
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
                    for path in edit::nodes_naming_vlan(submitted.edits, vlan) {
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
