//! Signatures after Standard Webhooks 1.0. Pure.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose};
use k8s_openapi::ByteString;
use ring::hmac;
use ring::signature::Ed25519KeyPair;

const HMAC_PREFIX: &str = "whsec_";
const ED25519_PREFIX: &str = "whsk_";
/// Minimum bytes of an HMAC key.
const MIN_HMAC_KEY_LEN: usize = 24;
/// Maximum keys of a Secret; a key rotation needs two.
const MAX_KEYS: usize = 8;
const SEED_LEN: usize = 32;

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a Secret has no usable keys. The text never contains a value of the Secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeysError {
    /// The Secret is empty.
    #[error("it has no data: a key such as whsec_… is needed")]
    None,
    /// The Secret has too many values.
    #[error("it has {0} values, of which all would be keys: at most {MAX_KEYS}")]
    Many(usize),
    /// A value is not a key.
    #[error(
        "its value {0:?} is no key: whsec_ and the base64 of {MIN_HMAC_KEY_LEN} bytes or more, or whsk_ and the base64 of an \
         Ed25519 key"
    )]
    NoKey(String),
}

enum Key {
    Hmac(hmac::Key),
    Ed25519(Box<Ed25519KeyPair>),
}

/// The current signing keys.
pub struct Keys(Vec<Key>);

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

impl Keys {
    /// Parses the keys of a Secret: every value of its data.
    pub fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, KeysError> {
        match data.len() {
            0 => return Err(KeysError::None),
            1..=MAX_KEYS => {}
            many => return Err(KeysError::Many(many)),
        }
        let keys =
            data.iter().map(|(name, value)| key(&value.0).ok_or_else(|| KeysError::NoKey(name.clone())));
        keys.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the header `webhook-signature` of a message, with one signature per key.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut signed = format!("{id}.{timestamp}.").into_bytes();
        signed.extend_from_slice(body);
        let encode = |bytes: &[u8]| general_purpose::STANDARD.encode(bytes);
        let signatures = self.0.iter().map(|key| match key {
            Key::Hmac(key) => format!("v1,{}", encode(hmac::sign(key, &signed).as_ref())),
            Key::Ed25519(key) => format!("v1a,{}", encode(key.sign(&signed).as_ref())),
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

fn key(value: &[u8]) -> Option<Key> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if let Some(encoded) = text.strip_prefix(HMAC_PREFIX) {
        let bytes = LENIENT.decode(encoded).ok().filter(|bytes| bytes.len() >= MIN_HMAC_KEY_LEN)?;
        return Some(Key::Hmac(hmac::Key::new(hmac::HMAC_SHA256, &bytes)));
    }
    let bytes = LENIENT.decode(text.strip_prefix(ED25519_PREFIX)?).ok()?;
    // A seed, optionally followed by the public key.
    let pair = match bytes.split_at_checked(SEED_LEN)? {
        (seed, []) => Ed25519KeyPair::from_seed_unchecked(seed),
        (seed, public) => Ed25519KeyPair::from_seed_and_public_key(seed, public),
    };
    pair.ok().map(|pair| Key::Ed25519(Box::new(pair)))
}

#[cfg(test)]
mod tests {
    use ring::signature::{ED25519, KeyPair as _, UnparsedPublicKey};

    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<Keys, KeysError> {
        let data = values.iter().map(|(name, value)| ((*name).into(), ByteString(value.as_bytes().into())));
        Keys::read(&data.collect())
    }

    /// The example of the specification.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn hmac_signature_matches_specification_example() {
        let keys = read(&[("key", SECRET)]).unwrap();
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(keys.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body), SIGNATURE);
    }

    #[test]
    fn header_has_one_signature_per_key() {
        let seed = [7; SEED_LEN];
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
        let encode = |bytes: &[u8]| general_purpose::STANDARD.encode(bytes);
        let short = format!("whsk_{}", encode(&seed));
        let long = format!("whsk_{}", encode(&[&seed[..], pair.public_key().as_ref()].concat()));
        let keys = read(&[("a", &format!("{SECRET}\n")), ("b", &short), ("c", &long)]).unwrap();
        let header = keys.sign("m", 5, b"{}");
        let [hmac, first, second] = header.split(' ').collect::<Vec<_>>()[..] else { panic!("{header}") };
        assert!(hmac.starts_with("v1,"));
        assert_eq!(first, second);
        let signature = general_purpose::STANDARD.decode(first.strip_prefix("v1a,").unwrap()).unwrap();
        UnparsedPublicKey::new(&ED25519, pair.public_key()).verify(b"m.5.{}", &signature).unwrap();
        assert_eq!(format!("{keys:?}"), "3 keys");
    }

    #[test]
    fn invalid_secret_is_refused_without_leaking_its_value() {
        assert_eq!(read(&[]).unwrap_err(), KeysError::None);
        let bad = ["", "hunter2", "whsec_", "whsec_c2hvcnQ=", "whsec_!!!", "whsk_AAAA", "whpk_AAAA"];
        for value in bad {
            let error = read(&[("good", SECRET), ("pass", value)]).unwrap_err();
            assert_eq!(error, KeysError::NoKey("pass".into()), "{value}");
            assert!(value.is_empty() || !error.to_string().contains(value) || value == "whsec_", "{error}");
        }
        let many: Vec<String> = (0..=MAX_KEYS).map(|n| n.to_string()).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), SECRET)).collect();
        assert_eq!(read(&many).unwrap_err(), KeysError::Many(MAX_KEYS + 1));
    }
}
