//! Answers to the servers: the user of a node with its rights, or a refusal. Pure.

use nkeys::error::Error as KeyError;
use serde::Serialize;

use super::jwt::{self, Claims, JwtError, VERSION};
use super::keys::LoginKeys;
use super::request::LoginRequest;
use super::rights::{self, Rights};

/// The account of all users: the only one of the configuration. A further one would turn JetStream off in it.
const ACCOUNT: &str = "$G";
/// No limit.
const NO_LIMIT: i64 = -1;

/// An answer can't be made, which is a fault of the keys. A retry does not help.
#[derive(Debug, thiserror::Error)]
pub(super) enum AnswerError {
    /// It can't be signed.
    #[error("signing the answer: {0}")]
    Sign(#[from] JwtError),
    /// It can't be encrypted.
    #[error("encrypting the answer: {0}")]
    Seal(#[from] KeyError),
}

#[derive(Serialize)]
struct User {
    #[serde(flatten)]
    rights: Rights,
    subs: i64,
    data: i64,
    payload: i64,
    allowed_connection_types: [&'static str; 1],
    #[serde(rename = "type")]
    kind: &'static str,
    version: u32,
}

#[derive(Serialize)]
struct Response<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(rename = "type")]
    kind: &'static str,
    version: u32,
}

/// The answer to a request: the connection is that of the node's agent, or the reason why it is refused. `now`: seconds
/// since 1970.
///
/// The user does not expire: an agent that is connected needs neither an engine nor the API server.
pub(super) fn answer(
    request: &LoginRequest,
    verdict: Result<&str, &str>,
    keys: &LoginKeys,
    now: u64,
) -> Result<Vec<u8>, AnswerError> {
    let jwt = verdict.ok().map(|node| user(request, node, keys, now)).transpose()?;
    let response = Claims {
        audience: request.server.clone(),
        issued: now,
        issuer: keys.issuer.public_key(),
        name: None,
        subject: request.user.clone(),
        nats: Response { jwt, error: verdict.err(), kind: "authorization_response", version: VERSION },
    };
    let text = jwt::sign(&response, &keys.issuer)?;
    Ok(keys.answerer.seal(text.as_bytes(), &request.server_key)?)
}

fn user(request: &LoginRequest, node: &str, keys: &LoginKeys, now: u64) -> Result<String, JwtError> {
    let claims = Claims {
        audience: ACCOUNT.to_owned(),
        issued: now,
        issuer: keys.issuer.public_key(),
        // It takes the place of the token in what the server shows of the connection.
        name: Some(format!("node {node}")),
        subject: request.user.clone(),
        nats: User {
            rights: rights::of_node(node),
            subs: NO_LIMIT,
            data: NO_LIMIT,
            payload: NO_LIMIT,
            allowed_connection_types: ["STANDARD"],
            kind: "user",
            version: VERSION,
        },
    };
    jwt::sign(&claims, &keys.issuer)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::request;
    use super::super::request::tests::Server;
    use super::*;

    fn answered(verdict: Result<&str, &str>) -> (Server, [LoginKeys; 1], Claims<Value>) {
        let (server, keys) = (Server::new(), [LoginKeys::new()]);
        let header = server.xkey.public_key();
        let payload = server.request(&keys[0], "t");
        let (request, used) = request::open(&payload, Some(&header), &keys).unwrap();
        let sealed = answer(&request, verdict, used, 7).unwrap();
        let text = server.xkey.open(&sealed, &keys[0].answerer).unwrap();
        let claims = jwt::verify(std::str::from_utf8(&text).unwrap()).unwrap();
        (server, keys, claims)
    }

    #[test]
    fn accepted_node_gets_a_user_of_the_connection() {
        let (server, keys, answer) = answered(Ok("node1"));
        assert_eq!((answer.audience, answer.issued), (server.id(), 7));
        assert_eq!((answer.issuer, answer.subject), (keys[0].issuer.public_key(), server.user.public_key()));
        assert_eq!(answer.nats.get("error"), None);
        let user: Claims<Value> = jwt::verify(answer.nats["jwt"].as_str().unwrap()).unwrap();
        assert_eq!((user.audience.as_str(), user.name.as_deref()), ("$G", Some("node node1")));
        assert_eq!((user.issuer, user.subject), (keys[0].issuer.public_key(), server.user.public_key()));
        let rights = serde_json::to_value(rights::of_node("node1")).unwrap();
        assert_eq!((&user.nats["pub"], &user.nats["sub"]), (&rights["pub"], &rights["sub"]));
        assert_eq!((&user.nats["type"], &user.nats["payload"]), (&json!("user"), &json!(-1)));
    }

    #[test]
    fn refused_login_gets_no_user() {
        let (_, _, answer) = answered(Err("why"));
        assert_eq!(answer.nats, json!({"error": "why", "type": "authorization_response", "version": 2}));
    }
}
