//! Further keys that NATS accepts for a time: the second key of each user while keys are rotated, and those that agents of
//! an earlier version share.

use std::ops::Range;

use eno_parts::nats_variable;
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, PodTemplateSpec, SecretKeySelector};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde_json::Value;

use super::{NATS, RenderError, change, container};
use crate::install::secrets::{self, AGENT, Secrets};

/// The variable of the servers with the key that agents of an earlier version share.
pub const SHARED_AGENT_KEY: &str = "AGENT_NKEY";

/// The key of the Secret with a user's second public key.
pub fn next_public(user: &str) -> String {
    format!("{user}.next.pub")
}

/// The users that have a second key.
fn users(secrets: &Secrets) -> impl Iterator<Item = &'static str> {
    secrets::users().filter(|user| secrets.nats.contains_key(&next_public(user)))
}

/// The keys that agents share, by the key of the Secret: each has a variable.
fn shared_keys(secrets: &Secrets) -> impl Iterator<Item = (String, String)> {
    [(format!("{AGENT}.pub"), SHARED_AGENT_KEY.to_owned()), (next_public(AGENT), second_variable(AGENT))]
        .into_iter()
        .filter(|(key, _)| secrets.nats.contains_key(key))
}

/// Lets NATS accept the further keys: changes its ConfigMap.
pub(super) fn add(configuration: &mut DynamicObject, secrets: &Secrets) -> Result<(), RenderError> {
    let users: Vec<_> = users(secrets).collect();
    let shared: Vec<_> = shared_keys(secrets).map(|(_, variable)| variable).collect();
    if users.is_empty() && shared.is_empty() {
        return Ok(());
    }
    let object = format!("ConfigMap {}", configuration.name_any());
    let text = configuration.data["data"]["authorization.conf"].as_str().unwrap_or_default();
    let text = with_second_keys(text, &users)
        .and_then(|text| with_shared_keys(&text, &shared))
        .map_err(|problem| RenderError::Object { object, problem })?;
    configuration.data["data"]["authorization.conf"] = Value::String(text);
    Ok(())
}

/// Gives the servers the further keys as environment variables: changes their StatefulSet.
pub(super) fn add_variables(servers: &mut DynamicObject, secrets: &Secrets) -> Result<(), RenderError> {
    change(servers, "/spec/template", |template: &mut PodTemplateSpec| {
        let nats = container(template, "nats")?;
        let second = users(secrets).map(|user| (next_public(user), second_variable(user)));
        for (key, name) in second.chain(shared_keys(secrets)) {
            let key = SecretKeySelector { name: NATS.to_owned(), key, optional: None };
            let source = EnvVarSource { secret_key_ref: Some(key), ..EnvVarSource::default() };
            nats.env.get_or_insert_default().push(EnvVar { name, value: None, value_from: Some(source) });
        }
        Ok(())
    })
}

fn second_variable(user: &str) -> String {
    format!("{}_NEXT", nats_variable(user))
}

/// Repeats the block of each user in an authorization for NATS, with the variable of its second key.
fn with_second_keys(text: &str, users: &[&str]) -> Result<String, String> {
    let mut text = text.to_owned();
    for user in users {
        let key = format!("nkey: ${}", nats_variable(user));
        let block = block_of(&text, &key)?;
        let second = text[block.clone()].replace(&key, &format!("nkey: ${}", second_variable(user)));
        text.insert_str(block.end, &added(&second, ["", ""]));
        text = with_login(&text, &added(&format!("${}", second_variable(user)), ["", ""]))?;
    }
    Ok(text)
}

/// The driver whose permissions the agents' key has, for the driver of nodes.
const MODEL: &str = "driver-nad";

/// Adds the user of all agents, with each of these variables for its key.
fn with_shared_keys(text: &str, variables: &[String]) -> Result<String, String> {
    variables.iter().try_fold(text.to_owned(), |text, variable| with_shared_key(&text, variable, ["", ""]))
}

/// Adds the user of all agents with a variable for its key. A line stands before each addition, and one after it.
pub fn with_shared_key(text: &str, variable: &str, [before, after]: [&str; 2]) -> Result<String, String> {
    let model = nats_variable(MODEL);
    let block = block_of(text, &format!("nkey: ${model}"))?;
    let agents = text[block.clone()]
        .replace(&model, variable)
        .replace(".nad", ".node")
        .replace("eno-driver-nad", "eno-driver-node");
    let mut text = text.to_owned();
    text.insert_str(block.end, &added(&agents, [before, after]));
    with_login(&text, &added(&format!("${variable}"), [before, after]))
}

fn added(text: &str, [before, after]: [&str; 2]) -> String {
    let lines = [before, text, after].into_iter().filter(|line| !line.is_empty());
    lines.fold(String::new(), |text, line| text + "\n    " + line)
}

/// Adds lines to the keys about whose users no engine is asked.
fn with_login(text: &str, lines: &str) -> Result<String, String> {
    const LIST: &str = "auth_users: [";
    let at = text.find(LIST).ok_or_else(|| format!("authorization.conf has no {LIST}"))? + LIST.len();
    Ok(format!("{}{lines}{}", &text[..at], &text[at..]))
}

/// Where the block of a user is, from its brace to the closing one.
fn block_of(text: &str, key: &str) -> Result<Range<usize>, String> {
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let mut places = text.match_indices(key).filter(|(at, _)| is_end(&text[at + key.len()..]));
    let (Some((at, _)), None) = (places.next(), places.next()) else {
        return Err(format!("authorization.conf does not have {key} once"));
    };
    let start = text[..at].rfind('{').ok_or_else(|| format!("authorization.conf: {key} is in no block"))?;
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
    Ok(start..start + length)
}

#[cfg(test)]
mod tests {
    use super::super::operator;
    use super::*;
    use crate::install::values::Replicas;

    const TEXT: &str = "auth_users: [$ENGINE_NKEY]\nusers: [\n {\n  nkey: $ENGINE_NKEY\n  permissions: { publish: [\"a\"] }\n }\n \
                        { nkey: $ADMIN_NKEY }\n]";

    #[test]
    fn second_keys_have_the_same_permissions() {
        assert_eq!(
            with_second_keys(TEXT, &["engine", "admin"]).expect("text"),
            "auth_users: [\n    $ADMIN_NKEY_NEXT\n    $ENGINE_NKEY_NEXT$ENGINE_NKEY]\nusers: [\n {\n  nkey: $ENGINE_NKEY\n  \
             permissions: { publish: [\"a\"] }\n }\n    {\n  nkey: $ENGINE_NKEY_NEXT\n  permissions: { publish: [\"a\"] }\n }\n \
             { nkey: $ADMIN_NKEY }\n    { nkey: $ADMIN_NKEY_NEXT }\n]"
        );
        assert!(with_second_keys(TEXT, &["inspect"]).is_err());
    }

    #[test]
    fn shared_key_of_agents_has_the_permissions_of_a_driver() {
        let objects = operator(Replicas::One).expect("manifests");
        let text = objects
            .iter()
            .find_map(|object| object["data"]["authorization.conf"].as_str())
            .expect("authorization.conf");
        assert!(!text.contains("AGENT"));
        let variables = [SHARED_AGENT_KEY.to_owned(), second_variable(AGENT)];
        let both = with_shared_keys(text, &variables).expect("text");
        let block = |key: &str| both[block_of(&both, key).expect("a block")].to_owned();
        let agents = block("nkey: $AGENT_NKEY");
        assert!(agents.contains("\"eno.v1.result.node.*\"") && agents.contains("_INBOX_eno-driver-node.>"));
        assert!(!agents.contains("nad"), "{agents}");
        assert_eq!(block("nkey: $AGENT_NKEY_NEXT").replace("_NEXT", ""), agents);
        assert_eq!(both.matches("$AGENT_NKEY").count(), 4);
        // The next version of a rotation's keys goes on to work.
        assert!(with_second_keys(&both, &["driver-nad"]).is_ok());
    }
}
