//! The operations of a transaction, as data and as XML (RFC 6241 sections 7 and 8).

use std::fmt::Write as _;

use crate::hello::Target;
use crate::text::Text;
use crate::xml::escape;

/// One NETCONF operation.
#[derive(Debug)]
pub(crate) enum Operation<'a> {
    /// `<get-config>` of a datastore with a subtree filter, or of all.
    GetConfig { source: &'static str, filter: Option<&'a str> },
    /// `<get>` with a subtree filter.
    Get { filter: &'a str },
    /// `<lock>` a datastore.
    Lock(&'static str),
    /// `<unlock>` a datastore.
    Unlock(&'static str),
    /// `<discard-changes>`.
    Discard,
    /// `<edit-config>`, merging.
    Edit { target: Target, rollback_on_error: bool, config: Text },
    /// `<validate>` the candidate.
    Validate,
    /// `<commit>` for good.
    Commit,
    /// `<commit>` that the device rolls back after `timeout` seconds.
    CommitConfirmed { timeout: u32, persist: Option<&'a str> },
    /// `<commit>` that confirms an earlier one.
    Confirm { persist_id: Option<&'a str> },
    /// `<cancel-commit>` of a persistent one.
    Cancel { persist_id: &'a str },
    /// `<copy-config>` from running to startup.
    SaveStartup,
}

impl Operation<'_> {
    /// The XML element.
    pub(crate) fn xml(self) -> Text {
        let xml = match self {
            Self::GetConfig { source, filter } => {
                let filter =
                    filter.map(|f| format!("<filter type=\"subtree\">{f}</filter>")).unwrap_or_default();
                format!("<get-config><source><{source}/></source>{filter}</get-config>")
            }
            Self::Get { filter } => format!("<get><filter type=\"subtree\">{filter}</filter></get>"),
            Self::Lock(target) => format!("<lock><target><{target}/></target></lock>"),
            Self::Unlock(target) => format!("<unlock><target><{target}/></target></unlock>"),
            Self::Discard => "<discard-changes/>".into(),
            Self::Edit { target, rollback_on_error, config } => {
                let on_error =
                    if rollback_on_error { "<error-option>rollback-on-error</error-option>" } else { "" };
                let mut xml = Text::from(format!(
                    "<edit-config><target><{}/></target><default-operation>merge</default-operation>{on_error}\
                     <config xmlns:nc=\"{}\">",
                    target.element(),
                    crate::xml::NETCONF
                ));
                xml.append(config);
                xml.push_str("</config></edit-config>");
                return xml;
            }
            Self::Validate => "<validate><source><candidate/></source></validate>".into(),
            Self::CommitConfirmed { timeout, persist } => {
                let mut xml = format!("<commit><confirmed/><confirm-timeout>{timeout}</confirm-timeout>");
                if let Some(persist) = persist {
                    let _ = write!(xml, "<persist>{}</persist>", escape(persist));
                }
                xml + "</commit>"
            }
            Self::Confirm { persist_id: Some(id) } => {
                format!("<commit><persist-id>{}</persist-id></commit>", escape(id))
            }
            Self::Commit | Self::Confirm { persist_id: None } => "<commit/>".into(),
            Self::Cancel { persist_id } => {
                format!("<cancel-commit><persist-id>{}</persist-id></cancel-commit>", escape(persist_id))
            }
            Self::SaveStartup => {
                "<copy-config><target><startup/></target><source><running/></source></copy-config>".into()
            }
        };
        xml.into()
    }
}
