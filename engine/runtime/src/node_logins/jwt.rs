//! JSON Web Tokens as NATS signs them: version 2 of its claims, with a signature of the issuer's nkey.
//!
//! The crates for such tokens refuse the requests of nats-server (they demand fields that it leaves out), or make tokens
//! of users only.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of the claims.
pub(super) const VERSION: u32 = 2;
const TYPE: &str = "JWT";
const ALGORITHM: &str = "ed25519-nkey";

/// A token is not one that its issuer signed. A retry does not help.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JwtError {
    /// It has another form.
    #[error("it is no token of three parts in base64 with JSON")]
    Form,
    /// Another type or algorithm.
    #[error("it is no token with a signature of an nkey")]
    Header,
    /// The issuer is no nkey.
    #[error("its issuer is no nkey")]
    Issuer,
    /// The signature is not the issuer's.
    #[error("its signature is not its issuer's")]
    Signature,
    /// The key can't sign.
    #[error("the key of the issuer can't sign")]
    Key,
}

/// Claims of a token; `nats` has those of its type.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Claims<T> {
    /// The audience.
    #[serde(rename = "aud")]
    pub audience: String,
    /// The time of the signature, in seconds since 1970.
    #[serde(rename = "iat")]
    pub issued: u64,
    /// The public key of the signer.
    #[serde(rename = "iss")]
    pub issuer: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The public key of whom it is about.
    #[serde(rename = "sub")]
    pub subject: String,
    /// The claims of its type.
    pub nats: T,
}

#[derive(Serialize, Deserialize)]
struct Header {
    typ: String,
    alg: String,
}

fn encode(value: &impl Serialize) -> Result<String, JwtError> {
    Ok(URL_SAFE_NO_PAD.encode(serde_json::to_vec(value).map_err(|_| JwtError::Form)?))
}

fn decode<T: DeserializeOwned>(part: &str) -> Result<T, JwtError> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Form)?;
    serde_json::from_slice(&bytes).map_err(|_| JwtError::Form)
}

/// Signs claims with the key of their issuer.
pub(super) fn sign<T: Serialize>(claims: &Claims<T>, key: &KeyPair) -> Result<String, JwtError> {
    let header = Header { typ: TYPE.to_owned(), alg: ALGORITHM.to_owned() };
    let signed = format!("{}.{}", encode(&header)?, encode(claims)?);
    let signature = key.sign(signed.as_bytes()).map_err(|_| JwtError::Key)?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// The claims of a token that its issuer signed. Whether the issuer is to be trusted is not judged.
pub(super) fn verify<T: DeserializeOwned>(token: &str) -> Result<Claims<T>, JwtError> {
    let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Form)?;
    let (header, claims) = signed.split_once('.').ok_or(JwtError::Form)?;
    let header: Header = decode(header)?;
    if header.typ != TYPE || header.alg != ALGORITHM {
        return Err(JwtError::Header);
    }
    let claims: Claims<T> = decode(claims)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtError::Form)?;
    let issuer = KeyPair::from_public_key(&claims.issuer).map_err(|_| JwtError::Issuer)?;
    issuer.verify(signed.as_bytes(), &signature).map_err(|_| JwtError::Signature)?;
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claims(issuer: &KeyPair) -> Claims<Value> {
        Claims {
            audience: "a".into(),
            issued: 1,
            issuer: issuer.public_key(),
            name: None,
            subject: "s".into(),
            nats: json!({"type": "user"}),
        }
    }

    #[test]
    fn signed_tokens_are_verified() {
        let key = KeyPair::new_account();
        let token = sign(&claims(&key), &key).unwrap();
        let read: Claims<Value> = verify(&token).unwrap();
        assert_eq!((read.issuer, read.nats), (key.public_key(), json!({"type": "user"})));
    }

    #[test]
    fn changed_tokens_are_refused() {
        let key = KeyPair::new_account();
        let token = sign(&claims(&key), &key).unwrap();
        let refused = |token: &str| verify::<Value>(token).unwrap_err();
        let [header, body, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("{token}") };
        let other = encode(&Claims { subject: "t".into(), ..claims(&key) }).unwrap();
        assert_eq!(refused(&format!("{header}.{other}.{signature}")), JwtError::Signature);
        let foreign = sign(&claims(&key), &KeyPair::new_account()).unwrap();
        assert_eq!(refused(&foreign), JwtError::Signature);
        for algorithm in ["none", "ed25519"] {
            let header = encode(&json!({"typ": "JWT", "alg": algorithm})).unwrap();
            assert_eq!(refused(&format!("{header}.{body}.{signature}")), JwtError::Header);
        }
        for text in ["", ".", "..", "a.b.c", body] {
            assert_eq!(refused(text), JwtError::Form);
        }
    }
}
