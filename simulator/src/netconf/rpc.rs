//! Parses the operation of an `<rpc>`.

use std::time::Duration;

use crate::bgp_sessions::BgpQuery;
use crate::datastores::{self, CommitRequest, Datastore, SessionId};
use crate::model::edit::{self, Edit, OnError, Operation};
use crate::model::schema::Definitions;
use crate::netconf::error::{RpcError, Tag};
use crate::netconf::push::{self, EstablishSubscription};
use crate::netconf::xml::{Element, NETCONF};
use crate::topology::{Capabilities, ConfirmedCommit};

/// The namespace of `<create-subscription>` (RFC 5277).
pub const NOTIFICATION: &str = "urn:ietf:params:xml:ns:netconf:notification:1.0";
/// The default of `<confirm-timeout>` (RFC 6241 section 8.4.5.1).
const DEFAULT_CONFIRM_TIMEOUT: Duration = Duration::from_mins(10);

/// An operation with its parameters.
#[derive(Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[allow(missing_docs, reason = "RFC 6241 section 7 or the vendor defines them")]
pub enum Rpc {
    Get { filter: Option<Vec<Element>> },
    GetConfig { source: Datastore, filter: Option<Vec<Element>> },
    EditConfig(EditConfig),
    CopyConfig { target: Datastore, source: Source },
    DeleteConfig { target: Datastore },
    Lock { target: Datastore },
    Unlock { target: Datastore },
    DiscardChanges,
    Validate { source: Source },
    Commit(CommitRequest),
    CancelCommit { persist_id: Option<String> },
    KillSession { session: SessionId },
    CloseSession,
    CreateSubscription,
    EstablishSubscription(EstablishSubscription),
    DeleteSubscription { id: u32 },
    GetEthernetSwitchingTableInformation,
    ShowBgp(BgpQuery),
}

impl Rpc {
    /// The operation's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ShowBgp(query) => query.operation,
            other => other.into(),
        }
    }
}

/// `<edit-config>`.
#[derive(Debug)]
pub struct EditConfig {
    /// `<target>`.
    pub target: Datastore,
    /// `<default-operation>`.
    pub default: Operation,
    /// `<test-option>`.
    pub test: TestOption,
    /// `<error-option>`.
    pub on_error: OnError,
    /// `<config>`.
    pub edits: Vec<Edit>,
}

/// `<test-option>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestOption {
    /// `set`, the default: the resulting configuration is not validated.
    Set,
    /// `test-then-set`: the resulting configuration is validated before it is set.
    TestThenSet,
    /// `test-only`: the resulting configuration is validated and not set.
    TestOnly,
}

/// `<source>`: a whole configuration.
#[derive(Debug)]
pub enum Source {
    /// The content of a datastore.
    Datastore(Datastore),
    /// The `<config>` in the request.
    Inline(Vec<Edit>),
}

/// The properties of a switch that parsing depends on.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Its capabilities.
    pub capabilities: &'a Capabilities,
    /// Its schema.
    pub roots: Definitions,
    /// The operation that shows its MAC table, if it has one of its own.
    pub mac_table: Option<&'static str>,
    /// The operations that show its BGP sessions.
    pub bgp: &'static [&'static str],
}

type Parsed<T> = Result<T, Vec<RpcError>>;

/// Parses the operation element.
pub fn parse(operation: &Element, context: Context<'_>) -> Parsed<Rpc> {
    let capabilities = context.capabilities;
    let unsupported = || {
        vec![
            RpcError::protocol(
                Tag::OperationNotSupported,
                format!("operation {} is not supported", operation.name),
            )
            .info("bad-element", &*operation.name),
        ]
    };
    if operation.is(NOTIFICATION, "create-subscription") && capabilities.notifications {
        return create_subscription(operation);
    }
    if capabilities.yang_push && &*operation.namespace == push::SUBSCRIBED {
        return push::parse(operation).unwrap_or_else(|| Err(unsupported()));
    }
    if &*operation.namespace != NETCONF {
        return Err(unsupported());
    }
    let parameters = Parameters { operation };
    match &*operation.name {
        "get" => {
            parameters.only(&["filter"])?;
            Ok(Rpc::Get { filter: parameters.filter()? })
        }
        "get-config" => {
            parameters.only(&["source", "filter"])?;
            let source = parameters.datastore("source", context)?;
            Ok(Rpc::GetConfig { source, filter: parameters.filter()? })
        }
        "edit-config" => edit_config(&parameters, context),
        "copy-config" => {
            parameters.only(&["target", "source"])?;
            let target = parameters.datastore("target", context)?;
            let source = parameters.source(context)?;
            match (target, &source) {
                (Datastore::Running, _) if !capabilities.writable_running => Err(unsupported()),
                (target, Source::Datastore(source)) if target == *source => {
                    Err(invalid("target", "source and target are the same"))
                }
                _ => Ok(Rpc::CopyConfig { target, source }),
            }
        }
        "delete-config" => {
            parameters.only(&["target"])?;
            match parameters.datastore("target", context)? {
                Datastore::Startup => Ok(Rpc::DeleteConfig { target: Datastore::Startup }),
                other => Err(invalid("target", &format!("{} can't be deleted", other.as_str()))),
            }
        }
        "lock" => {
            parameters.only(&["target"])?;
            Ok(Rpc::Lock { target: parameters.datastore("target", context)? })
        }
        "unlock" => {
            parameters.only(&["target"])?;
            Ok(Rpc::Unlock { target: parameters.datastore("target", context)? })
        }
        "discard-changes" if capabilities.candidate => {
            parameters.only(&[])?;
            Ok(Rpc::DiscardChanges)
        }
        "validate" if capabilities.validate => {
            parameters.only(&["source"])?;
            Ok(Rpc::Validate { source: parameters.source(context)? })
        }
        "commit" if capabilities.candidate => commit(&parameters, capabilities),
        "cancel-commit" if capabilities.confirmed_commit == ConfirmedCommit::V1_1 => {
            parameters.only(&["persist-id"])?;
            Ok(Rpc::CancelCommit { persist_id: parameters.text("persist-id").map(str::to_owned) })
        }
        "kill-session" => {
            parameters.only(&["session-id"])?;
            let text = parameters.required("session-id")?.text.trim();
            let session = text.parse().map_err(|_| invalid("session-id", "not a session number"))?;
            Ok(Rpc::KillSession { session })
        }
        "close-session" => {
            parameters.only(&[])?;
            Ok(Rpc::CloseSession)
        }
        name if context.mac_table == Some(name) => Ok(Rpc::GetEthernetSwitchingTableInformation),
        name => match context.bgp.iter().find(|operation| **operation == name) {
            Some(operation) => show_bgp(&parameters, operation),
            None => Err(unsupported()),
        },
    }
}

/// Parameters of `get-bgp-neighbor-information` and `get-bgp-summary-information` (junos-rpc-bgp).
fn show_bgp(parameters: &Parameters<'_>, operation: &'static str) -> Parsed<Rpc> {
    parameters.only(&["instance", "exact-instance", "neighbor-address"])?;
    let text = |name| parameters.text(name).map(str::to_owned);
    let instance = text("instance").or_else(|| text("exact-instance"));
    Ok(Rpc::ShowBgp(BgpQuery { operation, instance, neighbour: text("neighbor-address") }))
}

fn edit_config(parameters: &Parameters<'_>, context: Context<'_>) -> Parsed<Rpc> {
    let capabilities = context.capabilities;
    let mut known = vec!["target", "default-operation", "error-option", "config"];
    if capabilities.validate {
        known.push("test-option");
    }
    parameters.only(&known)?;
    let target = parameters.datastore("target", context)?;
    if target == Datastore::Running && !capabilities.writable_running || target == Datastore::Startup {
        return Err(invalid("target", &format!("{} can't be edited", target.as_str())));
    }
    let default = match parameters.text("default-operation") {
        None | Some("merge") => Operation::Merge,
        Some("replace") => Operation::Replace,
        Some("none") => Operation::None,
        Some(_) => return Err(invalid("default-operation", "not merge, replace or none")),
    };
    let test = match parameters.text("test-option") {
        None | Some("set") => TestOption::Set,
        Some("test-then-set") => TestOption::TestThenSet,
        Some("test-only") if capabilities.base_1_1 => TestOption::TestOnly,
        Some(_) => return Err(invalid("test-option", "not test-then-set, set or test-only")),
    };
    let on_error = match parameters.text("error-option") {
        None | Some("stop-on-error") => OnError::Stop,
        Some("continue-on-error") => OnError::Continue,
        Some("rollback-on-error") if capabilities.rollback_on_error => OnError::Rollback,
        Some(_) => return Err(invalid("error-option", "not an error option of this switch")),
    };
    let edits = edit::parse(context.roots, &parameters.required("config")?.children)?;
    Ok(Rpc::EditConfig(EditConfig { target, default, test, on_error, edits }))
}

fn commit(parameters: &Parameters<'_>, capabilities: &Capabilities) -> Parsed<Rpc> {
    parameters.only(match capabilities.confirmed_commit {
        ConfirmedCommit::None => &[],
        ConfirmedCommit::V1_0 => &["confirmed", "confirm-timeout"],
        ConfirmedCommit::V1_1 => &["confirmed", "confirm-timeout", "persist", "persist-id"],
    })?;
    let confirmed = parameters.get("confirmed").is_some();
    let timeout = match parameters.text("confirm-timeout") {
        None => DEFAULT_CONFIRM_TIMEOUT,
        Some(text) => match text.parse::<u32>() {
            Ok(seconds) if seconds > 0 => Duration::from_secs(u64::from(seconds)),
            _ => return Err(invalid("confirm-timeout", "not a number of seconds")),
        },
    };
    let persist = parameters.text("persist").map(str::to_owned);
    if persist.is_some() && !confirmed {
        return Err(vec![
            RpcError::protocol(Tag::MissingElement, "persist needs confirmed")
                .info("bad-element", "confirmed"),
        ]);
    }
    Ok(Rpc::Commit(CommitRequest {
        confirmed: confirmed.then_some(timeout),
        persist,
        persist_id: parameters.text("persist-id").map(str::to_owned),
    }))
}

fn create_subscription(operation: &Element) -> Parsed<Rpc> {
    for child in &operation.children {
        if !child.is(NOTIFICATION, "stream") {
            return Err(vec![
                RpcError::protocol(Tag::OperationNotSupported, format!("{} is not supported", child.name))
                    .info("bad-element", &*child.name),
            ]);
        }
        if child.text.trim() != "NETCONF" {
            return Err(invalid("stream", "the only stream is NETCONF"));
        }
    }
    Ok(Rpc::CreateSubscription)
}

fn invalid(element: &'static str, problem: &str) -> Vec<RpcError> {
    vec![RpcError::protocol(Tag::InvalidValue, format!("{element}: {problem}")).info("bad-element", element)]
}

struct Parameters<'a> {
    operation: &'a Element,
}

impl<'a> Parameters<'a> {
    fn only(&self, known: &[&str]) -> Parsed<()> {
        let errors: Vec<_> = self
            .operation
            .children
            .iter()
            .filter(|child| &*child.namespace != NETCONF || !known.contains(&&*child.name))
            .map(|child| {
                RpcError::protocol(
                    Tag::UnknownElement,
                    format!("{} is not a parameter of {}", child.name, self.operation.name),
                )
                .info("bad-element", &*child.name)
            })
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    fn get(&self, name: &str) -> Option<&'a Element> {
        self.operation.child(NETCONF, name)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name).map(|element| element.text.trim())
    }

    fn required(&self, name: &'static str) -> Parsed<&'a Element> {
        self.get(name).ok_or_else(|| {
            vec![
                RpcError::protocol(Tag::MissingElement, format!("{} needs {name}", self.operation.name))
                    .info("bad-element", name),
            ]
        })
    }

    fn datastore(&self, parameter: &'static str, context: Context<'_>) -> Parsed<Datastore> {
        match self.required(parameter)?.children.as_slice() {
            [name] if &*name.namespace == NETCONF => datastores::find(&name.name, context.capabilities)
                .ok_or_else(|| invalid(parameter, &format!("there is no datastore {}", name.name))),
            _ => Err(invalid(parameter, "exactly one datastore has to be named")),
        }
    }

    fn source(&self, context: Context<'_>) -> Parsed<Source> {
        let source = self.required("source")?;
        match source.child(NETCONF, "config") {
            Some(config) => Ok(Source::Inline(edit::parse(context.roots, &config.children)?)),
            None => self.datastore("source", context).map(Source::Datastore),
        }
    }

    fn filter(&self) -> Parsed<Option<Vec<Element>>> {
        let Some(filter) = self.get("filter") else { return Ok(None) };
        match filter.attribute("", "type").or_else(|| filter.attribute(NETCONF, "type")) {
            None | Some("subtree") => Ok(Some(filter.children.clone())),
            Some(other) => Err(vec![
                RpcError::protocol(Tag::BadAttribute, format!("filter type {other} is not supported"))
                    .info("bad-attribute", "type")
                    .info("bad-element", "filter"),
            ]),
        }
    }
}
