//! Texts of values that a regular expression restricts.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use eno_engine::callbacks::{Allowed, proxy_url};
use eno_sbi::daemon::log_filter;
use ipnet::IpNet;
use regex::Regex;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A URL with a user may have a password, which no message shows.
fn refusal(text: &str, expected: &str) -> String {
    if text.contains('@') && text.contains("://") {
        format!("write {expected}")
    } else {
        format!("{text:?} is not {expected}")
    }
}

/// An IPv4 address.
macro_rules! v4 {
    () => {
        r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}"
    };
}

/// An IPv6 address, without the forms that embed one of IPv4.
macro_rules! v6 {
    () => {
        concat!(
            "(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|([0-9a-fA-F]{1,4}:){1,7}:|([0-9a-fA-F]{1,4}:){1,6}:[0-9a-fA-F]{1,4}|",
            "([0-9a-fA-F]{1,4}:){1,5}(:[0-9a-fA-F]{1,4}){1,2}|([0-9a-fA-F]{1,4}:){1,4}(:[0-9a-fA-F]{1,4}){1,3}|",
            "([0-9a-fA-F]{1,4}:){1,3}(:[0-9a-fA-F]{1,4}){1,4}|([0-9a-fA-F]{1,4}:){1,2}(:[0-9a-fA-F]{1,4}){1,5}|",
            "[0-9a-fA-F]{1,4}:(:[0-9a-fA-F]{1,4}){1,6}|:((:[0-9a-fA-F]{1,4}){1,7}|:))"
        )
    };
}

/// A network.
macro_rules! network {
    () => {
        concat!("(", v4!(), "/(3[0-2]|[12]?[0-9])|", v6!(), "/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))")
    };
}

/// A part of a filter of logs.
macro_rules! directive {
    () => {
        concat!(
            "([A-Za-z][A-Za-z0-9_]*(::[A-Za-z][A-Za-z0-9_]*)*",
            "(=(off|error|warn|info|debug|trace|OFF|ERROR|WARN|INFO|DEBUG|TRACE))?)"
        )
    };
}

fn any(_: &str) -> bool {
    true
}

/// Defines a text that a regular expression, a length and the function of the program that gets it restrict. The
/// expressions are also those of the chart's schema, so they use only what Rust, Go and JSON Schema share. What they
/// permit, the function accepts.
macro_rules! checked {
    ($(#[doc = $doc:literal] $name:ident: $pattern:expr, $length:literal, $expected:literal, $parses:expr;)*) => {$(
        #[doc = $doc]
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub(super) String);

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new($pattern).ok());
                let parses: fn(&str) -> bool = $parses;
                let fits = PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(&text)) && parses(&text);
                if fits && text.chars().count() <= $length {
                    Ok(Self(text))
                } else {
                    Err(refusal(&text, $expected))
                }
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": $pattern, "minLength": 1, "maxLength": $length})
            }
        }
    )*};
}

checked! {
    /// A reference of an image.
    Image: r"^[A-Za-z0-9._-]+(:[0-9]+)?(/[A-Za-z0-9._-]+)*(:[A-Za-z0-9._-]+)?(@[a-z0-9]+:[A-Fa-f0-9]+)?$", 512,
        "an image such as registry.example.com/eno:v1", any;
    /// The name of a Kubernetes object.
    Name: r"^[a-z0-9.-]+$", 253, "the name of an object: a-z, 0-9, - and .", any;
    /// The identifier of a cluster on switches.
    ClusterId: r"^[a-z0-9]+$", 8, "1 to 8 characters of a-z and 0-9", any;
    /// An absolute directory.
    Directory: r"^(/([^./:\x00-\x1f][^/:\x00-\x1f]*|\.[^./:\x00-\x1f][^/:\x00-\x1f]*))+/?$", 4096,
        "an absolute directory such as /run/containerd", any;
    /// A number of bytes, as Kubernetes writes it.
    Quantity: r"^[1-9][0-9]*(k|M|G|T|Ki|Mi|Gi|Ti)?$", 14, "a size such as 512Mi or 5Gi", any;
    /// A network.
    Network: concat!("^", network!(), "$"), 43, "a network such as 10.244.0.0/16",
        |text| text.parse::<IpNet>().is_ok();
    /// Where callbacks may go: a network, an address, a host, or all hosts below a name.
    Receiver: concat!(r"^((\*\.)?[A-Za-z0-9._-]+|", network!(), "|", v6!(), r"|\[", v6!(), r"\])$"), 253,
        "one network such as 10.0.0.0/8, address, or host such as nfvo.example.com or *.example.com",
        |text| text.parse::<Allowed>().is_ok();
    /// A filter of logs.
    Log: concat!("^", directive!(), "(,", directive!(), ")*$"), 4096,
        "error, warn, info, debug, trace, or module=level pairs separated by commas",
        |text| log_filter(text).is_ok();
    /// A proxy of HTTP requests.
    Proxy: concat!(
            r"^https?://(([A-Za-z0-9_-]+\.)*[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?|", v4!(), r"|\[", v6!(), r"\])",
            "(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?/?$"
        ), 4096, "a URL without a user, such as http://proxy.example.com:3128",
        |text| proxy_url(text).is_ok();
    /// The name of a network interface.
    Interface: r"^[!-+.0-9;-~-]+$", 15, "the name of an interface: 1 to 15 characters", any;
    /// The name of an environment variable.
    Variable: r"^ENO_[A-Z0-9_]+$", 256, "a variable that the agent reads: ENO_ and A-Z, 0-9 and _", any;
    /// A line of text.
    Text: r"^[^\x00-\x1f\x7f]+$", 4096, "a line of text", any;
    /// The key of a label.
    LabelKey: r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$", 317,
        "the key of a label, such as release", any;
    /// The value of a label.
    LabelValue: r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$", 63, "the value of a label, such as prometheus", any;
}
