//! Configuration changes as the device tells them (RFC 5277, RFC 6470).

use crate::hello::Hello;
use crate::xml::{Scope, Step, walk};

const NOTIFICATION: &str = "urn:ietf:params:xml:ns:netconf:notification:1.0";
const EVENTS: &str = "urn:ietf:params:xml:ns:yang:ietf-netconf-notifications";

/// The operations that ask for them, the best first: a device may not know filters. None at all: the device has no
/// notifications, or none on a session that makes requests too.
pub(crate) fn subscriptions(hello: &Hello) -> Vec<String> {
    if !(hello.has("notification:1.0") && hello.has("interleave:1.0")) {
        return Vec::new();
    }
    // Who changed it is enough to know; what was changed can be long.
    let filter = format!(
        "<filter type=\"subtree\"><netconf-config-change xmlns=\"{EVENTS}\"><changed-by/></netconf-config-change>\
         <netconf-confirmed-commit xmlns=\"{EVENTS}\"/></filter>"
    );
    let subscribe = |filter: &str| {
        format!("<create-subscription xmlns=\"{NOTIFICATION}\">{filter}</create-subscription>")
    };
    vec![subscribe(&filter), subscribe("")]
}

/// The configuration was changed, and not by the session `own`.
pub(crate) fn is_foreign_change(message: &str, own: Option<u32>) -> bool {
    let (mut changed, mut by) = (false, None);
    let scope = |namespace: &str| match namespace {
        EVENTS => Scope::Known,
        NOTIFICATION => Scope::Transparent,
        _ => Scope::Foreign,
    };
    let walked = walk(message, scope, |step| match step {
        Step::Leave("netconf-config-change/changed-by/session-id", id) => by = id.parse::<u32>().ok(),
        // Or rolled back because nobody confirmed it in time.
        Step::Enter("netconf-config-change")
        | Step::Leave("netconf-confirmed-commit/confirm-event", "timeout") => changed = true,
        _ => {}
    });
    walked.is_ok() && changed && (by.is_none() || by != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_changes_are_no_news() {
        let change = |by: &str| {
            format!(
                "<notification xmlns='{NOTIFICATION}'><eventTime>2020-01-01T00:00:00Z</eventTime>\
                 <netconf-config-change xmlns='{EVENTS}'><changed-by>{by}</changed-by></netconf-config-change></notification>"
            )
        };
        let own = change("<username>eno</username><session-id>7</session-id>");
        assert!(!is_foreign_change(&own, Some(7)));
        assert!(is_foreign_change(&own, Some(8)));
        assert!(is_foreign_change(&change("<server/>"), Some(7)));
        let expired = format!(
            "<notification xmlns='{NOTIFICATION}'><netconf-confirmed-commit xmlns='{EVENTS}'>\
             <confirm-event>timeout</confirm-event></netconf-confirmed-commit></notification>"
        );
        assert!(is_foreign_change(&expired, Some(7)));
        assert!(!is_foreign_change("<notification/>", None));
    }
}
