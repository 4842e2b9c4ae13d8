//! Requests of nats-server to judge a login: opened, verified and read. Pure.

use std::fmt;

use nkeys::{KeyPair, KeyPairType, XKey};
use serde::Deserialize;

use super::jwt::{self, Claims, JwtError};
use super::keys::LoginKeys;

/// The header with the server's key of encryption.
pub(super) const SERVER_KEY: &str = "Nats-Server-Xkey";
/// The audience of each request.
const AUDIENCE: &str = "nats-authorization-request";
/// The type of the claims.
const TYPE: &str = "authorization_request";
/// Maximum size of a request. The token of a service account has some 1,500 bytes; certificates of a client may follow.
const MAX_BYTES: usize = 64 * 1024;

/// A login that a server asks about.
pub(super) struct LoginRequest {
    /// The public key that the server made for the user of this connection.
    pub user: String,
    /// The public key of the server.
    pub server: String,
    /// The server's key of encryption.
    pub server_key: XKey,
    /// The token that the client sent, if any.
    pub token: Option<String>,
}

impl fmt::Debug for LoginRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginRequest").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A message is not a server's request. A retry does not help.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    /// It is too large.
    #[error("it is larger than a request to judge a login")]
    Large,
    /// It is in clear text.
    #[error("it is not encrypted")]
    Clear,
    /// No key opens it.
    #[error("none of the keys opens it")]
    Sealed,
    /// It is no signed token.
    #[error(transparent)]
    Token(#[from] JwtError),
    /// It says something else than a server says.
    #[error("its {0} is not that of a server's request")]
    Foreign(&'static str),
}

#[derive(Deserialize)]
struct Body {
    #[serde(rename = "type")]
    kind: String,
    server_id: Server,
    user_nkey: String,
    connect_opts: Options,
}

#[derive(Deserialize)]
struct Server {
    id: String,
    #[serde(default)]
    xkey: String,
}

#[derive(Deserialize)]
struct Options {
    #[serde(default)]
    auth_token: Option<String>,
}

/// Opens and verifies a request. `server_key` is the text of the header [`SERVER_KEY`]. Returns the keys that open it: they
/// are those of the server's configuration.
///
/// The server signs with its own key, which it makes at each start. So the signature says that one server has made all of
/// it, and the encryption that no other client reads the token. Servers let no client publish requests.
///
/// The time at which the request ends is not judged: clocks differ, and a server waits for no answer to an old request.
pub(super) fn open<'a>(
    payload: &[u8],
    server_key: Option<&str>,
    keys: &'a [LoginKeys],
) -> Result<(LoginRequest, &'a LoginKeys), RequestError> {
    if payload.len() > MAX_BYTES {
        return Err(RequestError::Large);
    }
    let server_key = XKey::from_public_key(server_key.ok_or(RequestError::Clear)?)
        .map_err(|_| RequestError::Foreign("key of encryption"))?;
    let opened = keys.iter().find_map(|keys| Some((keys.answerer.open(payload, &server_key).ok()?, keys)));
    let (text, keys) = opened.ok_or(RequestError::Sealed)?;
    let text = std::str::from_utf8(&text).map_err(|_| JwtError::Form)?;
    let claims: Claims<Body> = jwt::verify(text)?;
    let Body { kind, server_id, user_nkey, connect_opts } = claims.nats;
    let is_key = |text: &str, kind: KeyPairType| {
        KeyPair::from_public_key(text).is_ok_and(|key| key.key_pair_type() == kind)
    };
    let expectations = [
        ("type", kind == TYPE),
        ("audience", claims.audience == AUDIENCE),
        ("subject", claims.subject == keys.issuer.public_key()),
        ("issuer", is_key(&claims.issuer, KeyPairType::Server) && claims.issuer == server_id.id),
        ("key of encryption", server_id.xkey == server_key.public_key()),
        ("user", is_key(&user_nkey, KeyPairType::User)),
    ];
    if let Some((what, _)) = expectations.into_iter().find(|(_, is_met)| !is_met) {
        return Err(RequestError::Foreign(what));
    }
    let request = LoginRequest {
        user: user_nkey,
        server: claims.issuer,
        server_key,
        token: connect_opts.auth_token.filter(|token| !token.is_empty()),
    };
    Ok((request, keys))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A server, as nats-server writes its requests.
    pub struct Server {
        key: KeyPair,
        pub xkey: XKey,
        pub user: KeyPair,
    }

    impl Server {
        pub fn new() -> Self {
            Self { key: KeyPair::new_server(), xkey: XKey::new(), user: KeyPair::new_user() }
        }

        fn claims(&self, keys: &LoginKeys, token: &str) -> Claims<Value> {
            Claims {
                audience: AUDIENCE.into(),
                issued: 1,
                issuer: self.key.public_key(),
                name: None,
                subject: keys.issuer.public_key(),
                nats: json!({
                    "server_id": {"name": "n", "host": "h", "id": self.key.public_key(), "xkey": self.xkey.public_key()},
                    "user_nkey": self.user.public_key(),
                    "client_info": {"host": "127.0.0.1", "id": 7, "kind": "Client", "type": "nats"},
                    "connect_opts": {"auth_token": token, "protocol": 1},
                    "type": TYPE,
                    "version": 2,
                }),
            }
        }

        /// A request about a client with this token.
        pub fn request(&self, keys: &LoginKeys, token: &str) -> Vec<u8> {
            self.sealed(keys, &self.claims(keys, token))
        }

        fn sealed(&self, keys: &LoginKeys, claims: &Claims<Value>) -> Vec<u8> {
            let text = jwt::sign(claims, &self.key).unwrap();
            self.xkey.seal(text.as_bytes(), &keys.answerer).unwrap()
        }

        pub fn id(&self) -> String {
            self.key.public_key()
        }
    }

    #[test]
    fn request_of_a_server_is_read() {
        let (server, keys) = (Server::new(), [LoginKeys::new(), LoginKeys::new()]);
        let header = server.xkey.public_key();
        for one in &keys {
            let (request, used) = open(&server.request(one, "t"), Some(&header), &keys).unwrap();
            assert_eq!((request.user, request.token), (server.user.public_key(), Some("t".into())));
            assert_eq!(request.server, server.id());
            assert_eq!(used.issuer.public_key(), one.issuer.public_key());
        }
        let (request, _) = open(&server.request(&keys[0], ""), Some(&header), &keys).unwrap();
        assert_eq!(request.token, None);
        assert!(!format!("{request:?}").contains("token"));
    }

    #[test]
    fn what_is_no_request_of_a_server_is_refused() {
        let (server, keys) = (Server::new(), [LoginKeys::new()]);
        let header = server.xkey.public_key();
        let refused = |payload: &[u8], header: Option<&str>| open(payload, header, &keys).unwrap_err();
        let good = server.request(&keys[0], "t");
        assert_eq!(refused(&good, None), RequestError::Clear);
        assert_eq!(refused(&good, Some(&XKey::new().public_key())), RequestError::Sealed);
        assert_eq!(refused(&server.request(&LoginKeys::new(), "t"), Some(&header)), RequestError::Sealed);
        assert_eq!(refused(&vec![0; MAX_BYTES + 1], Some(&header)), RequestError::Large);
        let clear = jwt::sign(&server.claims(&keys[0], "t"), &server.key).unwrap();
        assert_eq!(refused(clear.as_bytes(), Some(&header)), RequestError::Sealed);

        let changed = |change: &dyn Fn(&mut Claims<Value>)| {
            let mut claims = server.claims(&keys[0], "t");
            change(&mut claims);
            refused(&server.sealed(&keys[0], &claims), Some(&header))
        };
        let foreign = RequestError::Foreign;
        assert_eq!(changed(&|claims| claims.audience = "x".into()), foreign("audience"));
        assert_eq!(changed(&|claims| claims.subject = "x".into()), foreign("subject"));
        assert_eq!(changed(&|claims| claims.nats["type"] = json!("user")), foreign("type"));
        let other = KeyPair::new_server().public_key();
        assert_eq!(changed(&|claims| claims.nats["server_id"]["id"] = json!(other)), foreign("issuer"));
        assert_eq!(
            changed(&|claims| claims.nats["server_id"]["xkey"] = json!(XKey::new().public_key())),
            foreign("key of encryption")
        );
        let account = KeyPair::new_account().public_key();
        assert_eq!(changed(&|claims| claims.nats["user_nkey"] = json!(account)), foreign("user"));
        // Another key than the one that it names signed it.
        assert_eq!(
            changed(&|claims| claims.issuer.clone_from(&other)),
            RequestError::Token(JwtError::Signature)
        );
        // Not a server.
        let user = KeyPair::new_user();
        let mut claims = server.claims(&keys[0], "t");
        claims.issuer = user.public_key();
        claims.nats["server_id"]["id"] = json!(user.public_key());
        let text = jwt::sign(&claims, &user).unwrap();
        let sealed = server.xkey.seal(text.as_bytes(), &keys[0].answerer).unwrap();
        assert_eq!(refused(&sealed, Some(&header)), foreign("issuer"));
    }
}
