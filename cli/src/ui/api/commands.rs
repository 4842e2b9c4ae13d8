//! The commands with the same answer, to be copied into a shell. Every word is quoted: ports and files have any name.

use eno_engine::forecast::{Key, Kind};

use crate::inspect::source::Source;
use crate::ui::App;

/// The options that choose the same cluster or dump.
pub(super) fn options(app: &App) -> String {
    line([], &app.flags)
}

/// `eno`, with the options that choose the same cluster or dump.
pub(super) fn eno(app: &App, words: &[&str]) -> String {
    line(["eno"].iter().chain(words), &app.flags)
}

/// `eno COMMAND` about an object.
pub(super) fn about(app: &App, command: &str, key: &Key) -> String {
    let object = format!("{}/{}", key.kind.as_str().to_lowercase(), key.name);
    match key.namespace() {
        Some(namespace) => eno(app, &[command, &object, "-n", namespace]),
        None => eno(app, &[command, &object]),
    }
}

/// `eno connectivity test OBJECT`; `None`: nothing is probed for its kind, or it is a dump.
pub(super) fn connectivity_test(app: &App, key: &Key) -> Option<String> {
    let (Source::Live(_), Kind::L2ServiceAttachment | Kind::L2Service | Kind::ConnectionPoint) =
        (&app.source, key.kind)
    else {
        return None;
    };
    let object = format!("{}/{}", key.kind.as_str().to_lowercase(), key.name);
    let mut words = vec!["connectivity", "test", &object];
    words.extend(key.namespace().into_iter().flat_map(|namespace| ["-n", namespace]));
    Some(eno(app, &words))
}

/// `kubectl get RESOURCE NAME -o yaml`, with the options that choose the same cluster; `None`: it is a dump.
pub(super) fn kubectl_get(app: &App, resource: &str, namespace: Option<&str>, name: &str) -> Option<String> {
    let Source::Live(_) = &app.source else { return None };
    let mut words = vec!["kubectl", "get", resource, name, "-o", "yaml"];
    words.extend(namespace.into_iter().flat_map(|namespace| ["-n", namespace]));
    Some(line(&words, &app.flags))
}

fn line<'a>(words: impl IntoIterator<Item = &'a &'a str>, flags: &'a [String]) -> String {
    let words = words.into_iter().copied().chain(flags.iter().map(String::as_str));
    // A word with a NUL byte is none that a shell can take.
    shlex::try_join(words).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_shells() {
        for (words, expected) in [
            (&["eno", "blame", "leaf1", "Ethernet1/1.2"][..], "eno blame leaf1 Ethernet1/1.2"),
            (&["eno", "blame", "leaf1", "a; reboot"], "eno blame leaf1 'a; reboot'"),
            (&["eno", "blame", "leaf1", "$(x)'"], "eno blame leaf1 '$(x)'\"'\""),
        ] {
            assert_eq!(line(words, &[]), expected);
        }
        let flags = ["--from".to_owned(), "a dump.tar.gz".to_owned()];
        assert_eq!(line(&["eno", "status"], &flags), "eno status --from 'a dump.tar.gz'");
    }
}
