//! Notifications of configuration changes: RFC 5277 with RFC 6470, or YANG-push (RFC 8639, 8641).

use crate::hello::Hello;
use crate::text::Text;
use crate::xml::{Scope, Step, walk};

const NOTIFICATION: &str = "urn:ietf:params:xml:ns:netconf:notification:1.0";
const EVENTS: &str = "urn:ietf:params:xml:ns:yang:ietf-netconf-notifications";
const SUBSCRIBED: &str = "urn:ietf:params:xml:ns:yang:ietf-subscribed-notifications";
const PUSH: &str = "urn:ietf:params:xml:ns:yang:ietf-yang-push";
const DATASTORES: &str = "urn:ietf:params:xml:ns:yang:ietf-datastores";

/// The subscription requests, best first; one that succeeds is enough. Empty: the device has no notifications, or
/// none in a session that also sends requests. `of_interest`: the subtree filter of the read configuration.
///
/// RFC 6470 names the session that made a change, so own changes can be ignored; it comes first. YANG-push also
/// reports changes from outside of NETCONF, and own changes, each of which costs one read.
pub(crate) fn subscriptions(hello: &Hello, of_interest: &str) -> Vec<String> {
    let mut subscriptions = Vec::new();
    if hello.has("notification:1.0") && hello.has("interleave:1.0") {
        // The author is enough. The list of changes can be long.
        let filter = format!(
            "<filter type=\"subtree\"><netconf-config-change xmlns=\"{EVENTS}\"><changed-by/></netconf-config-change>\
             <netconf-confirmed-commit xmlns=\"{EVENTS}\"/></filter>"
        );
        let subscribe = |filter: &str| {
            format!("<create-subscription xmlns=\"{NOTIFICATION}\">{filter}</create-subscription>")
        };
        subscriptions.extend([subscribe(&filter), subscribe("")]);
    }
    if hello.has_module(PUSH) {
        // Without sync-on-start, since the driver reads everything anyway.
        let push = format!(
            "<establish-subscription xmlns=\"{SUBSCRIBED}\" xmlns:yp=\"{PUSH}\">\
             <yp:datastore xmlns:ds=\"{DATASTORES}\">ds:running</yp:datastore>\
             <yp:datastore-subtree-filter>{of_interest}</yp:datastore-subtree-filter>\
             <yp:on-change><yp:sync-on-start>false</yp:sync-on-start></yp:on-change></establish-subscription>"
        );
        // A device that has both but does not announce RFC 6470 sends other events only.
        let at = if hello.has_module(EVENTS) { subscriptions.len() } else { 0 };
        subscriptions.insert(at, push);
    }
    subscriptions
}

/// Whether the message reports a change by another session than `own`.
pub(crate) fn is_foreign_change(message: &Text, own: Option<u32>) -> bool {
    let (mut changed, mut by) = (false, None);
    let scope = |namespace: &str| match namespace {
        EVENTS | PUSH => Scope::Known,
        NOTIFICATION => Scope::Transparent,
        _ => Scope::Foreign,
    };
    let walked = walk(message, scope, |step| {
        match step {
            Step::Leave("netconf-config-change/changed-by/session-id", id) => by = id.parse::<u32>().ok(),
            // The device rolled back a commit that was not confirmed.
            Step::Enter("netconf-config-change" | "push-change-update")
            | Step::Leave("netconf-confirmed-commit/confirm-event", "timeout") => changed = true,
            _ => {}
        }
        Ok(())
    });
    walked.is_ok() && changed && (by.is_none() || by != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_changes_are_ignored() {
        let change = |by: &str| {
            format!(
                "<notification xmlns='{NOTIFICATION}'><eventTime>2020-01-01T00:00:00Z</eventTime>\
                 <netconf-config-change xmlns='{EVENTS}'><changed-by>{by}</changed-by></netconf-config-change></notification>"
            )
        };
        let own = change("<username>eno</username><session-id>7</session-id>");
        assert!(!is_foreign_change(&own.as_str().into(), Some(7)));
        assert!(is_foreign_change(&own.as_str().into(), Some(8)));
        assert!(is_foreign_change(&change("<server/>").into(), Some(7)));
        let expired = format!(
            "<notification xmlns='{NOTIFICATION}'><netconf-confirmed-commit xmlns='{EVENTS}'>\
             <confirm-event>timeout</confirm-event></netconf-confirmed-commit></notification>"
        );
        assert!(is_foreign_change(&expired.into(), Some(7)));
        assert!(!is_foreign_change(&"<notification/>".into(), None));
    }

    #[test]
    fn push_update_is_a_change() {
        let pushed = format!(
            "<notification xmlns='{NOTIFICATION}'><eventTime>2020-01-01T00:00:00Z</eventTime>\
             <push-change-update xmlns='{PUSH}'><id>1</id><datastore-changes><yang-patch><edit><target>/x</target>\
             </edit></yang-patch></datastore-changes></push-change-update></notification>"
        );
        assert!(is_foreign_change(&pushed.into(), Some(7)));
        let started = format!(
            "<notification xmlns='{NOTIFICATION}'><subscription-started xmlns='{SUBSCRIBED}'/></notification>"
        );
        assert!(!is_foreign_change(&started.into(), Some(7)));
    }

    #[test]
    fn best_subscription_is_tried_first() {
        let capability = |name: &str| format!("urn:ietf:params:netconf:capability:{name}:1.0");
        let first = |offered: &[String]| {
            let hello = Hello::new(offered.iter().cloned(), None);
            subscriptions(&hello, "<x/>").first().map(|operation| operation[..12].to_owned())
        };
        let both = [capability("notification"), capability("interleave")];
        let push = format!("{PUSH}?module=ietf-yang-push");
        assert_eq!(first(&[]), None);
        assert_eq!(first(&both[..1]), None);
        assert_eq!(first(&both).as_deref(), Some("<create-subs"));
        assert_eq!(first(std::slice::from_ref(&push)).as_deref(), Some("<establish-s"));
        let [a, b] = both;
        assert_eq!(first(&[a.clone(), b.clone(), push.clone()]).as_deref(), Some("<establish-s"));
        assert_eq!(first(&[a, b, push, EVENTS.to_owned()]).as_deref(), Some("<create-subs"));
    }
}
