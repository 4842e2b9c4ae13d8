//! The device's `<hello>` (RFC 6241 section 8.1) and how a transaction can run on such a device.

use std::collections::BTreeSet;

use crate::xml::{NETCONF, Scope, Step, XmlError, walk};

const BASE: &str = "urn:ietf:params:netconf:base:";
const CAPABILITY: &str = "urn:ietf:params:netconf:capability:";
/// How some older devices spell [`CAPABILITY`] and [`BASE`].
const LEGACY: &str = "urn:ietf:params:xml:ns:netconf:";

/// What we announce: both protocol versions.
pub(crate) const OURS: &str = "<hello xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><capabilities>\
    <capability>urn:ietf:params:netconf:base:1.0</capability>\
    <capability>urn:ietf:params:netconf:base:1.1</capability></capabilities></hello>";

/// A device's `<hello>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    capabilities: BTreeSet<String>,
    session_id: Option<u32>,
}

impl Hello {
    /// Of these capability URIs.
    pub fn new(capabilities: impl IntoIterator<Item = String>, session_id: Option<u32>) -> Self {
        let standard = |uri: String| match uri.strip_prefix(LEGACY) {
            Some(rest) => format!("urn:ietf:params:netconf:{rest}"),
            None => uri,
        };
        Self { capabilities: capabilities.into_iter().map(standard).collect(), session_id }
    }

    /// Reads the message.
    pub(crate) fn parse(xml: &str) -> Result<Self, XmlError> {
        let mut capabilities = Vec::new();
        let mut session_id = None;
        // Some devices forget the namespace of their hello.
        let scope = |ns: &str| if ns == NETCONF || ns.is_empty() { Scope::Known } else { Scope::Foreign };
        walk(xml, scope, |step| match step {
            Step::Leave("hello/capabilities/capability", uri) => capabilities.push(uri.to_owned()),
            Step::Leave("hello/session-id", id) => session_id = id.parse().ok(),
            _ => {}
        })?;
        Ok(Self::new(capabilities, session_id))
    }

    /// The id that the device gave to this session.
    pub fn session_id(&self) -> Option<u32> {
        self.session_id
    }

    /// True for NETCONF `version`, `1.0` or `1.1`.
    pub(crate) fn base(&self, version: &str) -> bool {
        self.capabilities.iter().any(|uri| uri.strip_prefix(BASE) == Some(version))
    }

    /// True for a standard capability such as `candidate:1.0`.
    pub fn has(&self, capability: &str) -> bool {
        self.standard().any(|own| own == capability)
    }

    /// True when a YANG module of this namespace is announced.
    pub fn has_module(&self, namespace: &str) -> bool {
        self.modules().any(|own| own == namespace)
    }

    /// The namespaces of the YANG modules that are announced.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        self.capabilities
            .iter()
            .filter(|uri| !uri.starts_with(CAPABILITY) && !uri.starts_with(BASE))
            .map(|uri| uri.split('?').next().unwrap_or(uri))
    }

    /// The protocol versions and standard capabilities by their short names: `base:1.1`, `candidate:1.0`, …
    pub fn short_names(&self) -> Vec<String> {
        let bases =
            self.capabilities.iter().filter_map(|uri| uri.strip_prefix(BASE)).map(|v| format!("base:{v}"));
        bases.chain(self.standard().map(str::to_owned)).collect()
    }

    fn standard(&self) -> impl Iterator<Item = &str> {
        self.capabilities
            .iter()
            .filter_map(|uri| uri.strip_prefix(CAPABILITY))
            .map(|name| name.split('?').next().unwrap_or(name))
    }
}

/// Where an edit goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Into the shared candidate, then commit.
    Candidate,
    /// Straight into what runs.
    Running,
}

impl Target {
    /// The name of the datastore's element.
    pub(crate) fn element(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Running => "running",
        }
    }
}

/// How a commit can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// Confirmed commit 1.1: it outlives its session under a persist-id.
    Persistent,
    /// Confirmed commit 1.0: it ends with its session.
    Session,
    /// A commit is final.
    None,
}

/// How a transaction runs on a device, chosen by its `<hello>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Where edits go.
    pub target: Target,
    /// How a commit is confirmed.
    pub confirmation: Confirmation,
    /// `<validate>` exists.
    pub validate: bool,
    /// A refused edit leaves nothing behind.
    pub rollback_on_error: bool,
    /// What runs has to be copied to the startup datastore.
    pub startup: bool,
}

impl Profile {
    /// The best that the device offers; `None`: its configuration can't be written.
    pub fn of(hello: &Hello) -> Option<Self> {
        let target = if hello.has("candidate:1.0") {
            Target::Candidate
        } else if hello.has("writable-running:1.0") {
            Target::Running
        } else {
            return None;
        };
        let confirmation = match target {
            Target::Candidate if hello.has("confirmed-commit:1.1") => Confirmation::Persistent,
            Target::Candidate if hello.has("confirmed-commit:1.0") => Confirmation::Session,
            Target::Candidate | Target::Running => Confirmation::None,
        };
        Some(Self {
            target,
            confirmation,
            validate: hello.has("validate:1.1") || hello.has("validate:1.0"),
            rollback_on_error: hello.has("rollback-on-error:1.0"),
            startup: hello.has("startup:1.0"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(capabilities: &[&str]) -> Hello {
        Hello::new(capabilities.iter().map(|c| format!("{CAPABILITY}{c}")), None)
    }

    #[test]
    fn a_hello_is_read() {
        let hello = Hello::parse(
            "<nc:hello xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><nc:capabilities>\
             <nc:capability> urn:ietf:params:netconf:base:1.1 </nc:capability>\
             <nc:capability>urn:ietf:params:netconf:capability:with-defaults:1.0?basic-mode=explicit</nc:capability>\
             <nc:capability>urn:ietf:params:xml:ns:netconf:capability:candidate:1.0</nc:capability>\
             <nc:capability>http://openconfig.net/yang/vlan?module=openconfig-vlan&amp;revision=1</nc:capability>\
             </nc:capabilities><nc:session-id>7</nc:session-id></nc:hello>",
        )
        .unwrap();
        assert_eq!(hello.session_id(), Some(7));
        assert!(
            hello.base("1.1") && !hello.base("1.0") && hello.has_module("http://openconfig.net/yang/vlan")
        );
        assert_eq!(hello.short_names(), ["base:1.1", "candidate:1.0", "with-defaults:1.0"]);
    }

    #[test]
    fn the_best_of_what_is_offered() {
        let full = Profile::of(&hello(&[
            "candidate:1.0",
            "confirmed-commit:1.0",
            "confirmed-commit:1.1",
            "validate:1.1",
        ]));
        let full = full.unwrap();
        assert_eq!(
            (full.target, full.confirmation, full.validate),
            (Target::Candidate, Confirmation::Persistent, true)
        );
        let old = Profile::of(&hello(&["candidate:1.0", "confirmed-commit:1.0"])).unwrap();
        assert_eq!(old.confirmation, Confirmation::Session);
        let direct =
            Profile::of(&hello(&["writable-running:1.0", "startup:1.0", "confirmed-commit:1.1"])).unwrap();
        assert_eq!(
            (direct.target, direct.confirmation, direct.startup),
            (Target::Running, Confirmation::None, true)
        );
        assert_eq!(Profile::of(&hello(&["xpath:1.0"])), None);
    }
}
