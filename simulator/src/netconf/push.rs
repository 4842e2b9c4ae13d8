//! YANG-push (RFC 8641) with dynamic subscriptions over NETCONF (RFC 8639, RFC 8640).
//!
//! Supported are on-change subscriptions to running or operational, with a subtree filter and without dampening.
//! Other requests are refused with the error identity of RFC 8641.

use std::fmt::Write as _;

use crate::model::filter;
use crate::model::schema::Definitions;
use crate::model::tree::{self, Container, NewContent};
use crate::netconf::error::{RpcError, Tag};
use crate::netconf::rpc::{NOTIFICATION, Rpc};
use crate::netconf::xml::{Element, push_element};

/// Namespace of ietf-subscribed-notifications.
pub const SUBSCRIBED: &str = "urn:ietf:params:xml:ns:yang:ietf-subscribed-notifications";
/// Namespace of ietf-yang-push.
pub const PUSH: &str = "urn:ietf:params:xml:ns:yang:ietf-yang-push";
const DATASTORES: &str = "urn:ietf:params:xml:ns:yang:ietf-datastores";
const PATCH: &str = "urn:ietf:params:xml:ns:yang:ietf-yang-patch";

/// Capability URIs of YANG-push in `<hello>`.
pub const MODULES: &[&str] = &[
    "urn:ietf:params:xml:ns:yang:ietf-subscribed-notifications?module=ietf-subscribed-notifications\
     &revision=2019-09-09&features=encode-xml,subtree",
    "urn:ietf:params:xml:ns:yang:ietf-yang-push?module=ietf-yang-push&revision=2019-09-09&features=on-change",
    "urn:ietf:params:xml:ns:yang:ietf-datastores?module=ietf-datastores&revision=2018-02-14",
    "urn:ietf:params:xml:ns:yang:ietf-yang-patch?module=ietf-yang-patch&revision=2017-02-22",
];

/// The parameters of `<establish-subscription>`.
#[derive(Debug, Clone)]
pub struct EstablishSubscription {
    /// Whether the datastore is operational instead of running.
    pub operational: bool,
    /// The subtree filter; absent for the whole datastore.
    pub filter: Option<Vec<Element>>,
    /// Whether it begins with a `push-update` of the current content (`sync-on-start`).
    pub sync_on_start: bool,
}

/// A subscription of a session.
#[derive(Debug)]
pub struct Subscription {
    /// Its id, unique on the switch.
    pub id: u32,
    /// Its parameters.
    pub request: EstablishSubscription,
    /// Number of `push-change-update` notifications sent.
    pub updates_sent: u32,
}

/// Parses an operation of ietf-subscribed-notifications. Returns `None` for an unsupported operation.
pub fn parse(operation: &Element) -> Option<Result<Rpc, Vec<RpcError>>> {
    match &*operation.name {
        "establish-subscription" => Some(establish(operation).map(Rpc::EstablishSubscription)),
        "delete-subscription" => {
            Some(match operation.child_text(SUBSCRIBED, "id").and_then(|id| id.parse().ok()) {
                Some(id) => Ok(Rpc::DeleteSubscription { id }),
                None => Err(vec![missing("id")]),
            })
        }
        _ => None,
    }
}

fn missing(name: &'static str) -> RpcError {
    RpcError::protocol(Tag::MissingElement, format!("{name} is missing or wrong")).info("bad-element", name)
}

/// An `operation-not-supported` error with an identity as `error-app-tag` (RFC 8640 section 7).
fn unsupported(identity: &'static str, message: &str) -> Vec<RpcError> {
    vec![RpcError::application(Tag::OperationNotSupported, message).app_tag(identity)]
}

fn establish(operation: &Element) -> Result<EstablishSubscription, Vec<RpcError>> {
    let datastore = operation.child(PUSH, "datastore").ok_or_else(|| vec![missing("datastore")])?;
    let (prefix, name) = datastore.text.trim().split_once(':').unwrap_or(("", datastore.text.trim()));
    let known = datastore.namespace_of(prefix).is_some_and(|namespace| &*namespace == DATASTORES);
    let operational = match name {
        "running" if known => false,
        "operational" if known => true,
        _ => {
            return Err(unsupported(
                "ietf-yang-push:datastore-not-subscribable",
                "running and operational can be had",
            ));
        }
    };
    if operation.child(PUSH, "datastore-xpath-filter").is_some()
        || operation.child(PUSH, "selection-filter-ref").is_some()
    {
        return Err(unsupported(
            "ietf-subscribed-notifications:filter-unsupported",
            "filters are subtrees here",
        ));
    }
    let Some(on_change) = operation.child(PUSH, "on-change") else {
        return Err(unsupported("ietf-yang-push:period-unsupported", "updates are sent on change only"));
    };
    if on_change.child_text(PUSH, "dampening-period").is_some_and(|period| period != "0") {
        return Err(unsupported("ietf-yang-push:period-unsupported", "changes are not dampened here"));
    }
    Ok(EstablishSubscription {
        operational,
        filter: operation.child(PUSH, "datastore-subtree-filter").map(|filter| filter.children.clone()),
        sync_on_start: on_change.child_text(PUSH, "sync-on-start") != Some("false"),
    })
}

/// Formats the reply to `<establish-subscription>`.
pub fn established(id: u32) -> String {
    format!("<id xmlns=\"{SUBSCRIBED}\">{id}</id>")
}

fn open(name: &str, id: u32) -> String {
    format!(
        "<notification xmlns=\"{NOTIFICATION}\"><eventTime>{}</eventTime><{name} xmlns=\"{PUSH}\"><id>{id}</id>",
        jiff::Timestamp::now()
    )
}

impl Subscription {
    fn filtered(&self, data: &Container, roots: Definitions) -> Container {
        match &self.request.filter {
            None => data.clone(),
            Some(filter) => filter::select(data, roots, filter),
        }
    }

    /// Formats a `push-update` with the selected content.
    pub fn push_update(&self, data: &Container, roots: Definitions) -> String {
        let mut out = open("push-update", self.id);
        out.push_str("<datastore-contents>");
        self.filtered(data, roots).write_xml(roots, "", &mut out);
        out.push_str("</datastore-contents></push-update></notification>");
        out
    }

    /// Formats a `push-change-update`, or returns `None` if the selected content is unchanged.
    pub fn push_change_update(
        &mut self,
        before: &Container,
        after: &Container,
        roots: Definitions,
    ) -> Option<String> {
        let (before, after) = (self.filtered(before, roots), self.filtered(after, roots));
        let (mut edits, mut count) = (String::new(), 0_u32);
        tree::differences(&before, &after, roots, None, &mut |path, change, content| {
            count += 1;
            let path = path.identifier();
            let operation: &str = change.into();
            // Writing to a String can't fail.
            let _ = write!(edits, "<edit><edit-id>{count}</edit-id><operation>{operation}</operation>");
            push_element(&mut edits, "target", &path.resource_path());
            if let Some(definition) = path.definition() {
                let value = |write: &dyn Fn(&mut String), edits: &mut String| {
                    edits.push_str("<value>");
                    write(edits);
                    edits.push_str("</value>");
                };
                match content {
                    NewContent::None => {}
                    NewContent::Container(c) => {
                        value(&|out| tree::write_container(definition, c, "", out), &mut edits);
                    }
                    NewContent::Value(v) => {
                        value(&|out| tree::write_value(definition, v, "", out), &mut edits);
                    }
                }
            }
            edits.push_str("</edit>");
        });
        if count == 0 {
            return None;
        }
        self.updates_sent += 1;
        let mut out = open("push-change-update", self.id);
        let _ = write!(
            out,
            "<datastore-changes><yang-patch xmlns=\"{PATCH}\"><patch-id>{}</patch-id>{edits}</yang-patch>\
             </datastore-changes></push-change-update></notification>",
            self.updates_sent
        );
        Some(out)
    }
}
