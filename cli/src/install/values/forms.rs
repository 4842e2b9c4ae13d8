//! Texts of values that a regular expression restricts.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

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

/// Defines a text that a regular expression and a length restrict. The expressions are also those of the chart's schema,
/// so they use only what Rust, Go and JSON Schema share.
macro_rules! checked {
    ($(#[doc = $doc:literal] $name:ident: $pattern:literal, $length:literal, $expected:literal;)*) => {$(
        #[doc = $doc]
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub(super) String);

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new($pattern).ok());
                let fits = PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(&text));
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
        "an image such as registry.example.com/eno:v1";
    /// The name of a Kubernetes object.
    Name: r"^[a-z0-9.-]+$", 253, "the name of an object: a-z, 0-9, - and .";
    /// The identifier of a cluster on switches.
    ClusterId: r"^[a-z0-9]+$", 8, "1 to 8 characters of a-z and 0-9";
    /// An absolute directory.
    Directory: r"^(/([^./:\x00-\x1f][^/:\x00-\x1f]*|\.[^./:\x00-\x1f][^/:\x00-\x1f]*))+/?$", 4096,
        "an absolute directory such as /run/containerd";
    /// A number of bytes, as Kubernetes writes it.
    Quantity: r"^[1-9][0-9]*(k|M|G|T|Ki|Mi|Gi|Ti)?$", 14, "a size such as 512Mi or 5Gi";
    /// A network.
    Network: r"^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])){3}/(3[0-2]|[12]?[0-9])|[0-9a-fA-F]*:[0-9a-fA-F:.]*/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$", 43, "a network such as 10.244.0.0/16";
    /// A proxy of HTTP requests.
    Proxy: r"^[a-z][a-z0-9+.-]*://[^@\x00-\x20\x7f]+$", 4096,
        "a URL without a user, such as http://proxy.example.com:3128";
    /// The name of a network interface.
    Interface: r"^[!-+.0-9;-~-]+$", 15, "the name of an interface: 1 to 15 characters";
    /// The name of an environment variable.
    Variable: r"^ENO_[A-Z0-9_]+$", 256, "a variable that the agent reads: ENO_ and A-Z, 0-9 and _";
    /// A line of text.
    Text: r"^[^\x00-\x1f\x7f]+$", 4096, "a line of text";
    /// The key of a label.
    LabelKey: r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$", 317,
        "the key of a label, such as release";
    /// The value of a label.
    LabelValue: r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$", 63, "the value of a label, such as prometheus";
}
