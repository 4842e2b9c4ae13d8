//! The API server's judgement on the token of an agent.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::{PostParams, Request};
use kube::{Client, Resource as _};

/// The audience of the agents' tokens. The API server accepts no request with such a token.
const AUDIENCE: &str = "eno-nats";
/// The service account of the agents.
const ACCOUNT: &str = "system:serviceaccount:eno-node:eno-agent";
/// Where the API server says to which node a token is bound: that of its pod, or the node itself.
const NODE: &str = "authentication.kubernetes.io/node-name";
/// Time for the API server's answer. The server waits little longer.
const TIME_LIMIT: Duration = Duration::from_millis(1500);

/// A token is not that of an agent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The client has none.
    #[error("it has no token")]
    NoToken,
    /// The API server does not know it, or it has expired, or is for something else.
    #[error("the API server does not accept its token for the audience {AUDIENCE}")]
    Unknown,
    /// It is for something else.
    #[error("its token is not for the audience {AUDIENCE}")]
    Audience,
    /// It is that of somebody else.
    #[error("its token is of {0}, and not of {ACCOUNT}")]
    Account(String),
    /// It is bound to no node.
    #[error("its token is bound to no node")]
    Node,
}

/// Why there is no judgement. A retry helps.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    /// The API server refused or did not understand the question.
    #[error("the API server does not review tokens: {0}")]
    Refused(Box<kube::Error>),
    /// It can't be understood.
    #[error("the API server's review of a token can't be read")]
    Answer,
    /// It took too long.
    #[error("the API server did not review a token within {} s", TIME_LIMIT.as_secs_f64())]
    Late,
}

/// The node of the agent that has this token.
pub(super) async fn review(client: &Client, token: String) -> Result<Result<String, Refusal>, ReviewError> {
    let failed = |error| ReviewError::Refused(Box::new(error));
    let spec = TokenReviewSpec { token, audiences: Some(vec![AUDIENCE.to_owned()]) };
    let review = TokenReview { spec, ..TokenReview::default() };
    let body = serde_json::to_vec(&review).map_err(|_| ReviewError::Answer)?;
    let request = Request::new(TokenReview::url_path(&(), None)).create(&PostParams::default(), body);
    let request = request.map_err(|_| ReviewError::Answer)?;
    // Read as text: the client would log an answer that it can't deserialise, and the answer has the token.
    let answer = tokio::time::timeout(TIME_LIMIT, client.request_text(request)).await;
    let answer = answer.map_err(|_| ReviewError::Late)?.map_err(failed)?;
    let review: TokenReview = serde_json::from_str(&answer).map_err(|_| ReviewError::Answer)?;
    Ok(judge(review.status.unwrap_or_default()))
}

/// The node to whose agent a reviewed token belongs.
fn judge(status: TokenReviewStatus) -> Result<String, Refusal> {
    if status.authenticated != Some(true) {
        return Err(Refusal::Unknown);
    }
    // An API server that knows no audiences returns none.
    if !status.audiences.iter().flatten().any(|audience| audience == AUDIENCE) {
        return Err(Refusal::Audience);
    }
    let user = status.user.unwrap_or_default();
    if user.username.as_deref() != Some(ACCOUNT) {
        return Err(Refusal::Account(user.username.unwrap_or_default()));
    }
    match user.extra.unwrap_or_default().remove(NODE).unwrap_or_default().as_slice() {
        [node] if !node.is_empty() => Ok(node.clone()),
        _ => Err(Refusal::Node),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(change: impl FnOnce(&mut Value)) -> Result<String, Refusal> {
        let mut status = json!({
            "authenticated": true,
            "audiences": ["other", AUDIENCE],
            "user": {"username": ACCOUNT, "extra": {NODE: ["node1"], "authentication.kubernetes.io/pod-name": ["p"]}},
        });
        change(&mut status);
        judge(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn only_tokens_of_an_agent_on_a_node_are_accepted() {
        assert_eq!(judged(|_| {}), Ok("node1".into()));
        assert_eq!(judged(|status| status["authenticated"] = json!(false)), Err(Refusal::Unknown));
        assert_eq!(judged(|status| *status = json!({})), Err(Refusal::Unknown));
        for audiences in [json!(null), json!([]), json!(["https://kubernetes.default.svc"])] {
            assert_eq!(judged(|status| status["audiences"] = audiences), Err(Refusal::Audience));
        }
        let other = "system:serviceaccount:default:eno-agent";
        assert_eq!(
            judged(|status| status["user"]["username"] = json!(other)),
            Err(Refusal::Account(other.into()))
        );
        for nodes in [json!([]), json!([""]), json!(["node1", "node2"])] {
            assert_eq!(judged(|status| status["user"]["extra"][NODE] = nodes), Err(Refusal::Node));
        }
        assert_eq!(judged(|status| status["user"]["extra"] = json!({})), Err(Refusal::Node));
    }
}
