//! Requests of people to a driver or the engine, and where these answer.
//!
//! Whoever asks names the subject of the answer. So who answers does it only below a subject on which the asker may not
//! publish, else the asker would publish with the rights of who answers. It is no inbox, where JetStream answers too.

use std::time::Duration;

use async_nats::{Client, StatusCode};
use bytes::Bytes;
use eno_schemas::Subject;
use futures::StreamExt as _;
use tokio::time::timeout;

/// The driver and target in the subjects of the engine's answers about callbacks.
pub const CALLBACKS: (&str, &str) = ("engine", "callbacks");

/// Asks who answers for a driver and target. A retry may help.
pub async fn ask(
    client: &Client,
    request: &Subject<'_>,
    (driver, target): (&str, &str),
    payload: Bytes,
    limit: Duration,
) -> Result<Bytes, async_nats::Error> {
    let inbox = client.new_inbox();
    let id = inbox.rsplit('.').next().unwrap_or(&inbox);
    let reply = Subject::answer(driver, target, id).to_string();
    let mut answers = client.subscribe(reply.clone()).await?;
    client.publish_with_reply(request.to_string(), reply, payload).await?;
    let answer = timeout(limit, answers.next()).await.map_err(|_| "no answer came in time")?;
    let answer = answer.ok_or("the connection ended")?;
    match answer.status {
        None => Ok(answer.payload),
        Some(StatusCode::NO_RESPONDERS) => Err("nobody answers".into()),
        Some(status) => Err(format!("NATS answered with the status {status}").into()),
    }
}

/// Where a request is answered; `None`: the request names another subject, and gets no answer.
pub fn answer_subject(reply: Option<&str>, of: (&str, &str)) -> Option<String> {
    let reply = reply?;
    match reply.parse() {
        Ok(Subject::Answer(target, _)) if (&*target.driver, &*target.target) == of => Some(reply.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_subjects_are_answered_on() {
        let of = ("netconf", "leaf1.dc1");
        let own = "eno.v1.answer.netconf.leaf1=2Edc1.x";
        assert_eq!(answer_subject(Some(own), of).as_deref(), Some(own));
        for other in [
            "eno.v1.answer.netconf.leaf2.x",
            "eno.v1.answer.nad.leaf1=2Edc1.x",
            "eno.v1.answer.netconf.leaf1=2Edc1",
            "eno.v1.answer.netconf.leaf1=2Edc1.x.y",
            "eno.v1.command.netconf.leaf1=2Edc1",
            "$JS.API.STREAM.DELETE.ENO_TRANSITIONS",
            "_INBOX_eno-cli.x",
            "",
        ] {
            assert_eq!(answer_subject(Some(other), of), None, "{other}");
        }
        assert_eq!(answer_subject(None, of), None);
    }
}
