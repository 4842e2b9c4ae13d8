//! The device's `<hello>` (RFC 6241 section 8.1) and the transaction profile that follows from it.

use std::collections::BTreeSet;

use eno_schemas::Rollback;

use crate::memory::Counter;
use crate::text::Text;
use crate::xml::{NETCONF, Scope, Step, XmlError, walk};

const BASE: &str = "urn:ietf:params:netconf:base:";
const CAPABILITY: &str = "urn:ietf:params:netconf:capability:";
/// The spelling of [`CAPABILITY`] and [`BASE`] on some older devices.
const LEGACY: &str = "urn:ietf:params:xml:ns:netconf:";

/// Our `<hello>` with both protocol versions.
pub(crate) const CLIENT_HELLO: &str = "<hello xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><capabilities>\
    <capability>urn:ietf:params:netconf:base:1.0</capability>\
    <capability>urn:ietf:params:netconf:base:1.1</capability></capabilities></hello>";

/// A device's `<hello>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    capabilities: BTreeSet<String>,
    session_id: Option<u32>,
}

impl Hello {
    /// A hello with these capability URIs.
    pub fn new(capabilities: impl IntoIterator<Item = String>, session_id: Option<u32>) -> Self {
        let standard = |uri: String| match uri.strip_prefix(LEGACY) {
            // A URI with parameters is a YANG module of NETCONF itself, such as ietf-netconf.
            Some(rest) if !rest.contains("?module=") => format!("urn:ietf:params:netconf:{rest}"),
            _ => uri,
        };
        Self { capabilities: capabilities.into_iter().map(standard).collect(), session_id }
    }

    /// Parses the message. Some devices write a banner before it.
    pub(crate) fn parse(xml: &Text) -> Result<Self, XmlError> {
        match Self::parse_document(xml) {
            Ok(hello) if !hello.capabilities.is_empty() => Ok(hello),
            failed => {
                let all = xml.to_string();
                let start = all.match_indices('<').map(|(at, _)| at).find(|at| is_hello(&all[*at..]));
                start.filter(|at| *at > 0).map_or(failed, |at| Self::parse_document(&all[at..].into()))
            }
        }
    }

    fn parse_document(xml: &Text) -> Result<Self, XmlError> {
        let mut capabilities = Vec::new();
        let mut session_id = None;
        // Some devices omit the namespace of their hello.
        let scope = |ns: &str| if ns == NETCONF || ns.is_empty() { Scope::Known } else { Scope::Foreign };
        walk(xml, scope, |step| {
            match step {
                Step::Leave("hello/capabilities/capability", uri) => capabilities.push(uri.to_owned()),
                Step::Leave("hello/session-id", id) => session_id = id.parse().ok(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(Self::new(capabilities, session_id))
    }

    /// The session-id.
    pub fn session_id(&self) -> Option<u32> {
        self.session_id
    }

    /// Whether NETCONF `version` is announced, `1.0` or `1.1`.
    pub(crate) fn base(&self, version: &str) -> bool {
        self.capabilities.iter().any(|uri| uri.strip_prefix(BASE) == Some(version))
    }

    /// Whether a standard capability such as `candidate:1.0` is announced.
    pub fn has(&self, capability: &str) -> bool {
        self.standard().any(|own| own == capability)
    }

    /// Whether a YANG module of this namespace is announced.
    pub fn has_module(&self, namespace: &str) -> bool {
        self.modules().any(|own| own == namespace)
    }

    /// The namespaces of the announced YANG modules.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        self.capabilities
            .iter()
            .filter(|uri| !uri.starts_with(CAPABILITY) && !uri.starts_with(BASE))
            .map(|uri| uri.split('?').next().unwrap_or(uri))
    }

    /// The subtree filter for [`add_library_modules`](Self::add_library_modules), if the device has a YANG library. YANG 1.1 modules are not
    /// announced one by one (RFC 7950 section 5.6.4).
    pub(crate) fn library_filter(&self) -> Option<&'static str> {
        if self.has("yang-library:1.1") {
            Some(
                "<yang-library xmlns=\"urn:ietf:params:xml:ns:yang:ietf-yang-library\"><module-set><name/><module>\
                 <name/><namespace/></module></module-set></yang-library>",
            )
        } else if self.has("yang-library:1.0") {
            Some(
                "<modules-state xmlns=\"urn:ietf:params:xml:ns:yang:ietf-yang-library\"><module><name/><revision/>\
                 <namespace/><conformance-type/></module></modules-state>",
            )
        } else {
            None
        }
    }

    /// Adds the modules that the device implements by its YANG library (RFC 8525, RFC 7895).
    pub(crate) fn add_library_modules(&mut self, library: &Text) -> Result<(), XmlError> {
        const LIBRARY: &str = "urn:ietf:params:xml:ns:yang:ietf-yang-library";
        let scope = |ns: &str| match ns {
            LIBRARY => Scope::Known,
            NETCONF => Scope::Transparent,
            _ => Scope::Foreign,
        };
        let mut last = (String::new(), false);
        // Afterwards the choice of a dialect is all that is kept of it.
        let mut kept = Counter::default();
        walk(library, scope, |step| {
            let implemented = match step {
                Step::Enter("modules-state/module") => {
                    last = Default::default();
                    return Ok(());
                }
                Step::Leave("modules-state/module/namespace", namespace) => {
                    namespace.clone_into(&mut last.0);
                    return Ok(());
                }
                Step::Leave("modules-state/module/conformance-type", kind) => {
                    last.1 = kind == "implement";
                    return Ok(());
                }
                Step::Leave("modules-state/module", _) if last.1 => std::mem::take(&mut last.0),
                Step::Leave("yang-library/module-set/module/namespace", namespace) => namespace.to_owned(),
                _ => return Ok(()),
            };
            kept.entry(implemented.len());
            self.capabilities.insert(implemented);
            kept.check()
        })
    }

    /// The protocol versions and standard capabilities by their short names: `base:1.1`, `candidate:1.0`, …
    pub fn short_names(&self) -> Vec<String> {
        let bases =
            self.capabilities.iter().filter_map(|uri| uri.strip_prefix(BASE)).map(|v| format!("base:{v}"));
        bases.chain(self.standard().map(str::to_owned)).collect()
    }

    /// The vendor of the device, derived from the owners of its modules.
    pub fn vendor(&self) -> Option<&'static str> {
        const VENDORS: [(&str, &str); 6] = [
            ("nokia.com:srlinux", "Nokia SR Linux"),
            ("juniper.net/", "Juniper Junos"),
            ("arista.com/", "Arista EOS"),
            ("cisco.com/ns/yang/cisco-nx-os", "Cisco NX-OS"),
            ("cisco.com/", "Cisco"),
            ("huawei", "Huawei"),
        ];
        let of = |owner: &str| self.modules().any(|module| module.to_ascii_lowercase().contains(owner));
        VENDORS.into_iter().find(|(owner, _)| of(owner)).map(|(_, vendor)| vendor)
    }

    fn standard(&self) -> impl Iterator<Item = &str> {
        self.capabilities
            .iter()
            .filter_map(|uri| uri.strip_prefix(CAPABILITY))
            .map(|name| name.split('?').next().unwrap_or(name))
    }
}

/// Whether `xml` begins with the start tag of a hello.
fn is_hello(xml: &str) -> bool {
    let name = xml[1..].split(|c: char| c.is_whitespace() || ">/<".contains(c)).next().unwrap_or_default();
    name.rsplit(':').next() == Some("hello")
}

/// The target of edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The shared candidate, followed by a commit.
    Candidate,
    /// The running datastore.
    Running,
}

impl Target {
    /// The name of the datastore's element.
    pub(crate) const fn element(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::Running => "running",
        }
    }
}

/// The confirmation of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// Confirmed commit 1.1: it survives its session under a persist-id.
    Persistent,
    /// Confirmed commit 1.0: it ends with its session.
    Session,
    /// A commit is final.
    None,
}

/// The way a transaction runs on a device, chosen by its `<hello>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The target of edits.
    pub target: Target,
    /// The confirmation of commits.
    pub confirmation: Confirmation,
    /// The device has `<validate>`.
    pub validate: bool,
    /// A refused edit is rolled back (`rollback-on-error`).
    pub rollback_on_error: bool,
    /// Running has to be copied to startup.
    pub startup: bool,
    /// The datastores to lock, in order.
    pub locks: &'static [&'static str],
}

impl Profile {
    /// The rollback support for the device's report.
    pub fn rollback(&self) -> Rollback {
        match self.confirmation {
            Confirmation::Persistent => Rollback::Persistent,
            Confirmation::Session => Rollback::Session,
            Confirmation::None => Rollback::None,
        }
    }
}

impl Profile {
    /// The best profile that the device offers; `None`: its configuration is read-only.
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
            locks: match target {
                Target::Candidate => &["running", "candidate"],
                Target::Running => &["running"],
            },
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
    fn hello_is_parsed() {
        let hello = Hello::parse(
            &"<nc:hello xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><nc:capabilities>\
             <nc:capability> urn:ietf:params:netconf:base:1.1 </nc:capability>\
             <nc:capability>urn:ietf:params:netconf:capability:with-defaults:1.0?basic-mode=explicit</nc:capability>\
             <nc:capability>urn:ietf:params:xml:ns:netconf:capability:candidate:1.0</nc:capability>\
             <nc:capability>urn:ietf:params:xml:ns:netconf:base:1.0?module=ietf-netconf&amp;features=candidate\
             </nc:capability>\
             <nc:capability>http://openconfig.net/yang/vlan?module=openconfig-vlan&amp;revision=1</nc:capability>\
             </nc:capabilities><nc:session-id>7</nc:session-id></nc:hello>"
                .into(),
        )
        .unwrap();
        assert_eq!(hello.session_id(), Some(7));
        assert!(
            hello.base("1.1") && !hello.base("1.0") && hello.has_module("http://openconfig.net/yang/vlan")
        );
        assert_eq!(hello.vendor(), None);
        assert_eq!(hello.short_names(), ["base:1.1", "candidate:1.0", "with-defaults:1.0"]);
    }

    #[test]
    fn hello_is_found_after_a_banner() {
        let hello = "<?xml version=\"1.0\"?><hello xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><capabilities>\
                     <capability>urn:ietf:params:netconf:base:1.0</capability></capabilities></hello>";
        let prefixed = "<n:hello xmlns:n=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><n:capabilities><n:capability>\
                        urn:ietf:params:netconf:base:1.0</n:capability></n:capabilities></n:hello>";
        for banner in ["", "\n", "<!-- <hello> -->", "R&D of <Example>, say hello\r\n", "a < b\n", "<<<\n"] {
            for hello in [hello, prefixed] {
                let parsed = Hello::parse(&format!("{banner}{hello}").into()).expect(banner);
                assert!(parsed.base("1.0"), "{banner}");
            }
        }
        assert!(Hello::parse(&"R&D <hello".into()).is_err());
    }

    #[test]
    fn module_owner_determines_vendor() {
        let vendor = |module: &str| Hello::new([module.to_owned()], None).vendor();
        assert_eq!(vendor("urn:nokia.com:srlinux:chassis:interfaces?module=x"), Some("Nokia SR Linux"));
        assert_eq!(vendor("http://yang.juniper.net/junos-qfx/conf/root"), Some("Juniper Junos"));
        assert_eq!(vendor("http://cisco.com/ns/yang/cisco-nx-os-device"), Some("Cisco NX-OS"));
        assert_eq!(vendor("http://openconfig.net/yang/vlan"), None);
    }

    #[test]
    fn modules_are_read_from_yang_library() {
        let reply = |content: &str| {
            Text::from(format!(
                "<rpc-reply xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><data>{}</data></rpc-reply>",
                content.replacen('>', " xmlns=\"urn:ietf:params:xml:ns:yang:ietf-yang-library\">", 1)
            ))
        };
        let mut new = hello(&["yang-library:1.1?revision=2019-01-04&content-id=7"]);
        assert!(new.library_filter().unwrap().starts_with("<yang-library "));
        let modules = "<module><name>a</name><namespace>urn:a</namespace></module>\
                       <import-only-module><name>b</name><namespace>urn:b</namespace></import-only-module>";
        new.add_library_modules(&reply(&format!(
            "<yang-library><module-set>{modules}</module-set></yang-library>"
        )))
        .unwrap();
        assert!(new.has_module("urn:a") && !new.has_module("urn:b"));

        let mut old = hello(&["yang-library:1.0?revision=2016-06-21&module-set-id=7"]);
        let module = |name: &str, kind: &str| {
            format!(
                "<module><namespace>urn:{name}</namespace><conformance-type>{kind}</conformance-type></module>"
            )
        };
        let modules = module("a", "implement") + &module("b", "import");
        old.add_library_modules(&reply(&format!("<modules-state>{modules}</modules-state>"))).unwrap();
        assert!(old.has_module("urn:a") && !old.has_module("urn:b") && hello(&[]).library_filter().is_none());
    }

    #[test]
    fn best_offered_profile_is_chosen() {
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
