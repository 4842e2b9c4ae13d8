//! The names of streams, buckets and subjects. No other code spells a subject.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::PartHash;

/// Stream of commands. It keeps the last one per subject.
pub const COMMANDS: &str = "ENO_COMMANDS";
/// Stream of the parts of commands ([`crate::Part`]). It keeps those that a command needs.
pub const PARTS: &str = "ENO_PARTS";
/// Stream of reports. It keeps the last one per subject.
pub const RESULTS: &str = "ENO_RESULTS";
/// Stream of phase changes of the last 7 days: the outbox.
pub const TRANSITIONS: &str = "ENO_TRANSITIONS";
/// Stream of reports of the last 7 days.
pub const HISTORY: &str = "ENO_HISTORY";
/// KV bucket of the drivers that are alive ([`crate::DriverHello`]), key `<driver>.<instance>`.
pub const DRIVERS: &str = "ENO_DRIVERS";
/// KV bucket of the instance that owns each target, key `<driver>.<target>`.
pub const OWNERS: &str = "ENO_OWNERS";
/// Stream of callbacks that were given up ([`crate::DeadLetter`]).
pub const DEAD_LETTERS: &str = "ENO_DEAD_LETTERS";
/// KV bucket of how far each object's callbacks have been delivered.
pub const CALLBACKS: &str = "ENO_CALLBACKS";

/// The prefix of all subjects.
const PREFIX: &str = "eno.v1.";
/// The token in place of the namespace of an object that has none.
const NO_NAMESPACE: &str = "_";

/// One subject. Its text has each name as one token: bytes outside `[A-Za-z0-9_-]` are written `=HH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject<'a> {
    /// The commands of a target: `eno.v1.command.<driver>.<target>`.
    Command(TargetName<'a>),
    /// A part of commands of a target: `eno.v1.part.<driver>.<target>.<hash>`.
    Part(TargetName<'a>, PartHash),
    /// The reports on a target: `eno.v1.result.<driver>.<target>`.
    Result(TargetName<'a>),
    /// All reports on a target: `eno.v1.history.<driver>.<target>`.
    History(TargetName<'a>),
    /// Requests for a preview of a command ([`crate::Preview`]): `eno.v1.preview.<driver>.<target>`.
    Preview(TargetName<'a>),
    /// The names of targets that are gone for good: `eno.v1.forget.<driver>`.
    Forget(Cow<'a, str>),
    /// The answer of a driver, or of the engine as the driver `engine`, to one request about a target:
    /// `eno.v1.answer.<driver>.<target>.<id>`. Nobody else may publish there.
    Answer(TargetName<'a>, Cow<'a, str>),
    /// The phase changes of an object: `eno.v1.transition.<kind>.<namespace or _>.<name>`.
    Transition(ObjectName<'a>),
    /// The callbacks of an object in the history: `eno.v1.history.callback.<kind>.<namespace or _>.<name>`.
    Delivery(ObjectName<'a>),
    /// The dead letters of an object: `eno.v1.dead.<kind>.<namespace or _>.<name>`.
    DeadLetter(ObjectName<'a>),
    /// What the agent of the node `from` says to that of the node `to` ([`crate::Visit`]):
    /// `eno.v1.visit.<to>.<from>`. Only `from` may publish there.
    Visit {
        /// The node that reads it.
        to: Cow<'a, str>,
        /// The node that writes it.
        from: Cow<'a, str>,
    },
    /// Requests to the leading engine about callbacks ([`crate::CallbackRequest`]): `eno.v1.callbacks`.
    CallbackRequest,
}

/// A target and its driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TargetName<'a> {
    /// The driver's name.
    pub driver: Cow<'a, str>,
    /// The target's name: a device, a node, or `<namespace>/<name>` of an attachment.
    pub target: Cow<'a, str>,
}

/// A custom resource. Its text is three tokens, `<kind>.<namespace or _>.<name>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectName<'a> {
    /// Its kind.
    pub kind: Cow<'a, str>,
    /// Its namespace, if it has one.
    pub namespace: Option<Cow<'a, str>>,
    /// Its name.
    pub name: Cow<'a, str>,
}

/// The family of a subject: the tokens after `eno.v1.`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubjectKind {
    /// [`Subject::Command`].
    Command,
    /// [`Subject::Part`].
    Part,
    /// [`Subject::Result`].
    Result,
    /// [`Subject::History`], and [`Subject::Delivery`] beneath it.
    History,
    /// [`Subject::Preview`].
    Preview,
    /// [`Subject::Forget`].
    Forget,
    /// [`Subject::Answer`].
    Answer,
    /// [`Subject::Transition`].
    Transition,
    /// [`Subject::Delivery`].
    Delivery,
    /// [`Subject::DeadLetter`].
    DeadLetter,
    /// [`Subject::Visit`].
    Visit,
}

/// A text is not a subject of ENO.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a subject of ENO")]
pub struct SubjectError(String);

impl<'a> Subject<'a> {
    /// [`Self::Command`].
    pub fn command(driver: &'a str, target: &'a str) -> Self {
        Self::Command(TargetName::new(driver, target))
    }

    /// [`Self::Part`].
    pub fn part(driver: &'a str, target: &'a str, hash: PartHash) -> Self {
        Self::Part(TargetName::new(driver, target), hash)
    }

    /// [`Self::Result`].
    pub fn result(driver: &'a str, target: &'a str) -> Self {
        Self::Result(TargetName::new(driver, target))
    }

    /// [`Self::History`].
    pub fn history(driver: &'a str, target: &'a str) -> Self {
        Self::History(TargetName::new(driver, target))
    }

    /// [`Self::Preview`].
    pub fn preview(driver: &'a str, target: &'a str) -> Self {
        Self::Preview(TargetName::new(driver, target))
    }

    /// [`Self::Forget`].
    pub fn forget(driver: &'a str) -> Self {
        Self::Forget(driver.into())
    }

    /// [`Self::Answer`].
    pub fn answer(driver: &'a str, target: &'a str, id: &'a str) -> Self {
        Self::Answer(TargetName::new(driver, target), id.into())
    }

    /// [`Self::Transition`].
    pub fn transition(kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> Self {
        Self::Transition(ObjectName::new(kind, namespace, name))
    }

    /// [`Self::Delivery`].
    pub fn delivery(kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> Self {
        Self::Delivery(ObjectName::new(kind, namespace, name))
    }

    /// [`Self::DeadLetter`].
    pub fn dead_letter(kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> Self {
        Self::DeadLetter(ObjectName::new(kind, namespace, name))
    }
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SubjectKind as Kind;
        let (kind, names): (Kind, &dyn fmt::Display) = match self {
            Self::Command(target) => (Kind::Command, target),
            Self::Result(target) => (Kind::Result, target),
            Self::History(target) => (Kind::History, target),
            Self::Preview(target) => (Kind::Preview, target),
            Self::Forget(driver) => (Kind::Forget, &Token(driver)),
            Self::Part(target, hash) => {
                return write!(f, "{PREFIX}{}.{target}.{hash}", Kind::Part.as_str());
            }
            Self::Answer(target, id) => {
                return write!(f, "{PREFIX}{}.{target}.{}", Kind::Answer.as_str(), Token(id));
            }
            Self::Transition(object) => (Kind::Transition, object),
            Self::Delivery(object) => (Kind::Delivery, object),
            Self::DeadLetter(object) => (Kind::DeadLetter, object),
            Self::CallbackRequest => return write!(f, "{PREFIX}callbacks"),
            Self::Visit { to, from } => {
                return write!(f, "{PREFIX}{}.{}.{}", Kind::Visit.as_str(), Token(to), Token(from));
            }
        };
        write!(f, "{PREFIX}{}.{names}", kind.as_str())
    }
}

impl FromStr for Subject<'static> {
    type Err = SubjectError;
    fn from_str(text: &str) -> Result<Self, SubjectError> {
        let error = || SubjectError(text.to_owned());
        let rest = text.strip_prefix(PREFIX).ok_or_else(error)?;
        let tokens: Vec<&str> = rest.split('.').collect();
        let name = |token: &str| decode_token(token).map(Cow::Owned).ok_or_else(error);
        let target = |driver, target| Ok(TargetName { driver: name(driver)?, target: name(target)? });
        let object = |kind, namespace, own| {
            let namespace = (namespace != NO_NAMESPACE).then(|| name(namespace)).transpose()?;
            Ok(ObjectName { kind: name(kind)?, namespace, name: name(own)? })
        };
        Ok(match *tokens {
            ["command", driver, of] => Self::Command(target(driver, of)?),
            ["part", driver, of, hash] => Self::Part(target(driver, of)?, hash.parse().map_err(|_| error())?),
            ["result", driver, of] => Self::Result(target(driver, of)?),
            ["history", driver, of] => Self::History(target(driver, of)?),
            ["preview", driver, of] => Self::Preview(target(driver, of)?),
            ["forget", driver] => Self::Forget(name(driver)?),
            ["answer", driver, of, id] => Self::Answer(target(driver, of)?, name(id)?),
            ["transition", kind, namespace, own] => Self::Transition(object(kind, namespace, own)?),
            ["history", "callback", kind, namespace, own] => Self::Delivery(object(kind, namespace, own)?),
            ["dead", kind, namespace, own] => Self::DeadLetter(object(kind, namespace, own)?),
            ["callbacks"] => Self::CallbackRequest,
            ["visit", to, from] => Self::Visit { to: name(to)?, from: name(from)? },
            _ => return Err(error()),
        })
    }
}

impl SubjectKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Part => "part",
            Self::Result => "result",
            Self::History => "history",
            Self::Preview => "preview",
            Self::Forget => "forget",
            Self::Answer => "answer",
            Self::Transition => "transition",
            Self::Delivery => "history.callback",
            Self::DeadLetter => "dead",
            Self::Visit => "visit",
        }
    }

    /// The filter of all subjects of this kind: `eno.v1.command.>`.
    pub fn all(self) -> String {
        format!("{PREFIX}{}.>", self.as_str())
    }

    /// The filter of all targets of a driver: `eno.v1.command.<driver>.*`, and `eno.v1.part.<driver>.*.*`.
    pub fn of_driver(self, driver: &str) -> String {
        let below = if self == Self::Part { ".*" } else { "" };
        format!("{PREFIX}{}.{}.*{below}", self.as_str(), Token(driver))
    }

    /// The filter of all subjects of this kind beneath a target: `eno.v1.part.<driver>.<target>.*`.
    pub fn of_target(self, target: &TargetName<'_>) -> String {
        format!("{PREFIX}{}.{target}.*", self.as_str())
    }

    /// The subject of this kind with these tokens, such as an [`ObjectName`]'s text.
    pub fn with_tokens(self, tokens: &str) -> String {
        format!("{PREFIX}{}.{tokens}", self.as_str())
    }

    /// The tokens of a subject of this kind; `None`: it is of another kind.
    pub fn tokens_of(self, subject: &str) -> Option<&str> {
        subject.strip_prefix(PREFIX)?.strip_prefix(self.as_str())?.strip_prefix('.')
    }
}

impl<'a> TargetName<'a> {
    /// Of these names.
    pub fn new(driver: &'a str, target: &'a str) -> Self {
        Self { driver: driver.into(), target: target.into() }
    }
}

impl fmt::Display for TargetName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", Token(&self.driver), Token(&self.target))
    }
}

impl<'a> ObjectName<'a> {
    /// Of these names.
    pub fn new(kind: &'a str, namespace: Option<&'a str>, name: &'a str) -> Self {
        Self { kind: kind.into(), namespace: namespace.map(Cow::from), name: name.into() }
    }
}

impl fmt::Display for ObjectName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or(NO_NAMESPACE);
        write!(f, "{}.{}.{}", Token(&self.kind), Token(namespace), Token(&self.name))
    }
}

/// A KV key of two tokens, `<driver>.<target or instance>`.
pub fn key(driver: &str, name: &str) -> String {
    TargetName::new(driver, name).to_string()
}

/// The stream behind a bucket.
pub fn bucket_stream(bucket: &str) -> String {
    format!("KV_{bucket}")
}

/// The subject of a key of a bucket, or of several by wildcards.
pub fn of_bucket(bucket: &str, key: &str) -> String {
    format!("$KV.{bucket}.{key}")
}

/// A name as one token.
pub fn token(name: &str) -> String {
    Token(name).to_string()
}

/// The name that a token stands for; `None`: it is not a token.
pub fn decode_token(token: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'=' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

struct Token<'a>(&'a str);

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
                fmt::Write::write_char(f, byte.into())?;
            } else {
                write!(f, "={byte:02X}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_become_tokens() {
        let text = |subject: Subject<'_>| subject.to_string();
        assert_eq!(text(Subject::command("netconf", "leaf1.dc1")), "eno.v1.command.netconf.leaf1=2Edc1");
        assert_eq!(text(Subject::result("nad", "ns/a*>b")), "eno.v1.result.nad.ns=2Fa=2A=3Eb");
        assert_eq!(text(Subject::forget("netconf")), "eno.v1.forget.netconf");
        assert_eq!(text(Subject::transition("L2Service", None, "s")), "eno.v1.transition.L2Service._.s");
        assert_eq!(text(Subject::transition("L2Service", Some("_"), "s")), "eno.v1.transition.L2Service._.s");
        assert_eq!(text(Subject::delivery("L2Service", None, "s")), "eno.v1.history.callback.L2Service._.s");
        assert_eq!(text(Subject::dead_letter("L2Service", Some("a"), "s")), "eno.v1.dead.L2Service.a.s");
        assert_eq!(text(Subject::CallbackRequest), "eno.v1.callbacks");
        let visit = Subject::Visit { to: "a.b".into(), from: "c".into() };
        assert_eq!(text(visit.clone()), "eno.v1.visit.a=2Eb.c");
        assert_eq!("eno.v1.visit.a=2Eb.c".parse(), Ok(visit));
        assert_eq!(token("é ="), "=C3=A9=20=3D");
    }

    #[test]
    fn filters_match_subjects_of_their_kind() {
        assert_eq!(SubjectKind::Command.all(), "eno.v1.command.>");
        assert_eq!(SubjectKind::Preview.of_driver("a.b"), "eno.v1.preview.a=2Eb.*");
        assert_eq!(SubjectKind::Part.of_driver("a.b"), "eno.v1.part.a=2Eb.*.*");
        assert_eq!(SubjectKind::Part.of_target(&TargetName::new("a", "b.c")), "eno.v1.part.a.b=2Ec.*");
        let subject = Subject::transition("L2Service", None, "s").to_string();
        let tokens = SubjectKind::Transition.tokens_of(&subject).unwrap();
        assert_eq!(tokens, ObjectName::new("L2Service", None, "s").to_string());
        let delivery = Subject::delivery("L2Service", None, "s").to_string();
        assert_eq!(SubjectKind::Delivery.with_tokens(tokens), delivery);
        assert_eq!(SubjectKind::DeadLetter.tokens_of(&subject), None);
    }

    #[test]
    fn texts_that_are_no_subjects_are_refused() {
        for text in [
            "",
            "eno.v1.command.netconf",
            "eno.v1.command.netconf.a=4",
            "eno.v1.command.a.b.c",
            "eno.v1.part.a.b.c",
            "eno.v2.callbacks",
        ] {
            assert_eq!(text.parse::<Subject<'_>>(), Err(SubjectError(text.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn subjects_are_read_back(one in "\\PC{1,9}", two in "\\PC{1,9}", namespace in "[^_]{1,9}") {
            let all = [
                Subject::command(&one, &two),
                Subject::part(&one, &two, PartHash::of(namespace.as_bytes())),
                Subject::result(&one, &two),
                Subject::history(&one, &two),
                Subject::preview(&one, &two),
                Subject::forget(&one),
                Subject::answer(&one, &two, &namespace),
                Subject::transition(&one, None, &two),
                Subject::delivery(&one, Some(&namespace), &two),
                Subject::dead_letter(&one, Some(&namespace), &two),
                Subject::CallbackRequest,
            ];
            for subject in all {
                prop_assert_eq!(&subject.to_string().parse::<Subject<'_>>().unwrap(), &subject);
            }
        }
    }
}
