//! `<rpc-error>` (RFC 6241 section 4.3 and appendix A).

use crate::model::path::InstanceIdentifier;
use crate::netconf::xml::{push_element, push_text};

/// `error-type`: the layer at which the error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ErrorType {
    /// Messages: framing, the `<rpc>` element.
    Rpc,
    /// Operations and their parameters.
    Protocol,
    /// The content of the configuration.
    Application,
}

/// `error-tag` (RFC 6241 appendix A).
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[allow(missing_docs, reason = "RFC 6241 appendix A defines them")]
pub enum Tag {
    InUse,
    InvalidValue,
    MissingAttribute,
    BadAttribute,
    UnknownAttribute,
    MissingElement,
    BadElement,
    UnknownElement,
    UnknownNamespace,
    AccessDenied,
    LockDenied,
    ResourceDenied,
    RollbackFailed,
    DataExists,
    DataMissing,
    OperationNotSupported,
    OperationFailed,
    MalformedMessage,
    TooBig,
}

/// The format of `error-path`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathStyle {
    /// An XPath expression (RFC 6241 section 4.3).
    XPath,
    /// The Junos format: `[edit interfaces xe-0/0/1]`.
    Junos,
}

/// One `<rpc-error>` of severity `error`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcError {
    /// `error-type`.
    pub error_type: ErrorType,
    /// `error-tag`.
    pub tag: Tag,
    /// `error-app-tag`, such as `instance-required` (RFC 7950 section 15).
    pub app_tag: Option<&'static str>,
    /// `error-path`.
    pub path: Option<Box<InstanceIdentifier>>,
    /// `error-message`.
    pub message: String,
    /// Elements of `error-info`, in NETCONF's namespace.
    pub info: Vec<(&'static str, String)>,
}

impl RpcError {
    /// An error of an operation or its parameters.
    pub fn protocol(tag: Tag, message: impl Into<String>) -> Self {
        Self {
            error_type: ErrorType::Protocol,
            tag,
            app_tag: None,
            path: None,
            message: message.into(),
            info: Vec::new(),
        }
    }

    /// An error of the message itself.
    pub fn rpc(tag: Tag, message: impl Into<String>) -> Self {
        Self { error_type: ErrorType::Rpc, ..Self::protocol(tag, message) }
    }

    /// An error of the configuration's content.
    pub fn application(tag: Tag, message: impl Into<String>) -> Self {
        Self { error_type: ErrorType::Application, ..Self::protocol(tag, message) }
    }

    /// Sets `error-path`.
    #[must_use]
    pub fn at(mut self, path: impl Into<InstanceIdentifier>) -> Self {
        self.path = Some(Box::new(path.into()));
        self
    }

    /// Sets `error-app-tag`.
    #[must_use]
    pub fn app_tag(mut self, tag: &'static str) -> Self {
        self.app_tag = Some(tag);
        self
    }

    /// Adds an element to `error-info`.
    #[must_use]
    pub fn info(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.info.push((name, value.into()));
        self
    }

    /// Appends the element as XML; the default namespace of the surrounding element is that of NETCONF. `untagged`:
    /// without `error-tag` and `error-info`.
    pub fn write(&self, style: PathStyle, untagged: bool, out: &mut String) {
        out.push_str("<rpc-error>");
        push_element(out, "error-type", self.error_type.into());
        if !untagged {
            push_element(out, "error-tag", (&self.tag).into());
        }
        push_element(out, "error-severity", "error");
        if let Some(tag) = self.app_tag {
            push_element(out, "error-app-tag", tag);
        }
        if let Some(path) = &self.path {
            out.push_str("<error-path");
            match style {
                PathStyle::XPath => path.push_xpath(out),
                PathStyle::Junos => {
                    out.push('>');
                    push_text(out, &path.junos_path());
                }
            }
            out.push_str("</error-path>");
        }
        out.push_str("<error-message xml:lang=\"en\">");
        push_text(out, &self.message);
        out.push_str("</error-message>");
        if !self.info.is_empty() && !untagged {
            out.push_str("<error-info>");
            for (name, value) in &self.info {
                push_element(out, name, value);
            }
            out.push_str("</error-info>");
        }
        out.push_str("</rpc-error>");
    }
}
