//! The second key of each NATS user that is valid while keys are rotated.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, PodTemplateSpec, SecretKeySelector};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

use super::{NATS, RenderError, change, container};
use crate::install::secrets::{self, Secrets};

/// The key of the Secret with a user's second public key.
pub fn next_public(user: &str) -> String {
    format!("{user}.next.pub")
}

/// The users that have a second key.
fn users(secrets: &Secrets) -> impl Iterator<Item = &'static str> {
    secrets::users().filter(|user| secrets.nats.contains_key(&next_public(user)))
}

/// Lets NATS accept the second keys: changes its ConfigMap.
pub(super) fn add(configuration: &mut DynamicObject, secrets: &Secrets) -> Result<(), RenderError> {
    let users: Vec<_> = users(secrets).collect();
    if users.is_empty() {
        return Ok(());
    }
    let object = format!("ConfigMap {}", configuration.name_any());
    let text = configuration.data["data"]["authorization.conf"].as_str().unwrap_or_default();
    let text = with_second_keys(text, &users).map_err(|problem| RenderError::Object { object, problem })?;
    configuration.data["data"]["authorization.conf"] = Value::String(text);
    Ok(())
}

/// Gives the servers the second keys as environment variables: changes their StatefulSet.
pub(super) fn add_variables(servers: &mut DynamicObject, secrets: &Secrets) -> Result<(), RenderError> {
    change(servers, "/spec/template", |template: &mut PodTemplateSpec| {
        let nats = container(template, "nats")?;
        for user in users(secrets) {
            let key = SecretKeySelector { name: NATS.to_owned(), key: next_public(user), optional: None };
            let source = EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() };
            nats.env.get_or_insert_default().push(EnvVar {
                name: second_variable(user),
                value: None,
                value_from: Some(source),
            });
        }
        Ok(())
    })
}

fn variable(user: &str) -> String {
    format!("{}_NKEY", user.replace('-', "_").to_uppercase())
}

fn second_variable(user: &str) -> String {
    format!("{}_NEXT", variable(user))
}

/// Repeats the block of each user in an authorization for NATS, with the variable of its second key.
fn with_second_keys(text: &str, users: &[&str]) -> Result<String, String> {
    let mut text = text.to_owned();
    for user in users {
        let key = format!("nkey: ${}", variable(user));
        let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let mut places = text.match_indices(&key).filter(|(at, _)| is_end(&text[at + key.len()..]));
        let (Some((at, _)), None) = (places.next(), places.next()) else {
            return Err(format!("authorization.conf does not have {key} once"));
        };
        let start =
            text[..at].rfind('{').ok_or_else(|| format!("authorization.conf: {key} is in no block"))?;
        let mut depth = 0_usize;
        let length = text[start..]
            .char_indices()
            .find(|(_, c)| {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                depth == 0
            })
            .map(|(length, _)| length + 1)
            .ok_or_else(|| format!("authorization.conf: the block of {key} does not end"))?;
        let block = text[start..start + length].replace(&key, &format!("nkey: ${}", second_variable(user)));
        text.insert_str(start + length, &format!("\n    {block}"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_keys_have_the_same_permissions() {
        let text = "users: [\n {\n  nkey: $ENGINE_NKEY\n  permissions: { publish: [\"a\"] }\n }\n { nkey: $ADMIN_NKEY }\n]";
        assert_eq!(
            with_second_keys(text, &["engine", "admin"]).expect("text"),
            "users: [\n {\n  nkey: $ENGINE_NKEY\n  permissions: { publish: [\"a\"] }\n }\n    {\n  nkey: $ENGINE_NKEY_NEXT\n  \
             permissions: { publish: [\"a\"] }\n }\n { nkey: $ADMIN_NKEY }\n    { nkey: $ADMIN_NKEY_NEXT }\n]"
        );
        assert!(with_second_keys(text, &["agent"]).is_err());
    }
}
