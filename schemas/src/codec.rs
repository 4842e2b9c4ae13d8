//! Encoding and decoding of messages, with schema validation.
//!
//! Processes of different versions exchange messages during an upgrade. Unknown fields are ignored, and a
//! message of another major version (`schemaVersion`; absent: 1) is refused. Within a version, fields are only added,
//! and readers may ignore them.

use std::sync::LazyLock;

use jsonschema::Validator;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    CallbackAnswer, CallbackRequest, Command, CommandMessage, DeadLetter, Delivery, DriverHello, Head, Part,
    Preview, Report, Transition, Visit,
};

/// The major version of messages that do not say theirs.
const VERSION: u64 = 1;

/// Why a message was not encoded or decoded. A retry does not help: the sender has to send a valid one.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The message is not JSON.
    #[error("{message} message is not JSON: {source}")]
    Json {
        /// The kind of message.
        message: &'static str,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The message has an unsupported major version. It stays in its stream for a program that supports it.
    #[error(
        "{message} message is of version {found}, and this program reads version {read}: upgrade the older side"
    )]
    Version {
        /// The kind of message.
        message: &'static str,
        /// The message's version.
        found: Value,
        /// The latest version that this program reads.
        read: u64,
    },
    /// The JSON breaks the schema or a rule of its type.
    #[error("{message} message breaks its schema at {path}: {reason}")]
    Schema {
        /// The kind of message.
        message: &'static str,
        /// JSON pointer of the violation; `/` is the whole message.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

/// A message with a schema in `schemas/v1/`.
pub trait Message: Serialize + DeserializeOwned + JsonSchema {
    /// The schema's file name without `.json`.
    const NAME: &'static str;
    /// The major version.
    const VERSION: u64 = VERSION;
    /// The compiled schema.
    fn validator() -> &'static Validator;
}

macro_rules! message {
    ($type:ty, $name:literal $(, $version:expr)?) => {
        impl Message for $type {
            const NAME: &'static str = $name;
            $(const VERSION: u64 = $version;)?
            fn validator() -> &'static Validator {
                static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| compile::<$type>());
                &VALIDATOR
            }
        }
    };
}

message!(Command, "command");
message!(Head, "head", Head::FORMAT);
message!(Part, "part");
message!(Report, "result");
message!(Transition, "transition");
message!(DriverHello, "driver");
message!(Delivery, "delivery");
message!(Preview, "preview");
message!(DeadLetter, "dead-letter");
message!(CallbackRequest, "callback-request");
message!(CallbackAnswer, "callback-answer");
message!(Visit, "visit");

fn compile<T: Message>() -> Validator {
    // The schema is generated from a type of this crate; a test compiles each.
    jsonschema::draft202012::new(&schema_of::<T>())
        .unwrap_or_else(|error| unreachable!("the schema of {} does not compile: {error}", T::NAME))
}

/// The JSON Schema (draft 2020-12) of a message, as in `schemas/v1/`.
pub fn schema_of<T: Message>() -> Value {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.to_value()
}

/// Encodes a message.
pub fn encode<T: Message>(message: &T) -> Result<Vec<u8>, MessageError> {
    let value =
        serde_json::to_value(message).map_err(|source| MessageError::Json { message: T::NAME, source })?;
    check::<T>(&value)?;
    serde_json::to_vec(&value).map_err(|source| MessageError::Json { message: T::NAME, source })
}

/// Decodes a message.
pub fn decode<T: Message>(bytes: &[u8]) -> Result<T, MessageError> {
    from_value(parse::<T>(bytes)?)
}

/// Decodes a message on the subject of a target's commands.
pub fn decode_command(bytes: &[u8]) -> Result<CommandMessage, MessageError> {
    let value = parse::<Command>(bytes)?;
    if version(&value) == Some(VERSION) {
        return from_value(value).map(Box::new).map(CommandMessage::Whole);
    }
    from_value(value).map(CommandMessage::Head)
}

fn parse<T: Message>(bytes: &[u8]) -> Result<Value, MessageError> {
    serde_json::from_slice(bytes).map_err(|source| MessageError::Json { message: T::NAME, source })
}

/// `None`: it is no number.
fn version(value: &Value) -> Option<u64> {
    value.get("schemaVersion").map_or(Some(VERSION), Value::as_u64)
}

fn from_value<T: Message>(value: Value) -> Result<T, MessageError> {
    if version(&value) != Some(T::VERSION) {
        let found = value.get("schemaVersion").cloned().unwrap_or(VERSION.into());
        return Err(MessageError::Version { message: T::NAME, found, read: T::VERSION });
    }
    check::<T>(&value)?;
    T::deserialize(value).map_err(|error| MessageError::Schema {
        message: T::NAME,
        path: "/".into(),
        reason: error.to_string(),
    })
}

fn check<T: Message>(value: &Value) -> Result<(), MessageError> {
    match T::validator().validate(value) {
        Ok(()) => Ok(()),
        Err(error) => {
            let path = error.instance_path().to_string();
            Err(MessageError::Schema {
                message: T::NAME,
                path: if path.is_empty() { "/".into() } else { path },
                reason: error.to_string(),
            })
        }
    }
}
