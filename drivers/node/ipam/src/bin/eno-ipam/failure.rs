//! Errors as CNI has them.

use eno_ipam::Error;
use serde_json::{Value, json};

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The version of the configuration.
    Version = 1,
    /// A variable of the environment.
    Environment = 4,
    /// The system refused something.
    Io = 5,
    /// The configuration is no JSON.
    Decode = 6,
    /// The configuration says something impossible.
    Config = 7,
    /// There is no address now.
    TryAgainLater = 11,
    /// STATUS: ADD can't succeed.
    NotAvailable = 50,
    /// A file has other content than expected.
    Content = 100,
    /// CHECK: the interface has not the address.
    NoLease = 101,
}

/// An error, which is the answer.
#[derive(Debug)]
pub struct Failure {
    code: Code,
    message: String,
    details: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    pub fn with(self, details: String) -> Self {
        Self { details, ..self }
    }

    /// As it is written to stdout.
    pub fn answer(&self, version: &str) -> Value {
        let mut answer = json!({ "cniVersion": version, "code": self.code as u32, "msg": self.message });
        if !self.details.is_empty() {
            answer["details"] = json!(self.details);
        }
        answer
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Name { what: "Subnet", .. } => Code::Config,
            Error::Name { .. } | Error::Container(_) => Code::Environment,
            Error::Io { .. } => Code::Io,
            Error::Content { .. } => Code::Content,
        };
        Self::new(code, error.to_string())
    }
}
