//! The effect of manifests, as `eno plan` and `eno ui` show it.

use anyhow::Context as _;
use eno_engine::forecast::{self, Change, ClusterState, Forecast, SwitchForecast, is_namespaced, key_of};
use eno_engine::trace::{self, Messages};
use eno_sbi::nats::Connection;
use eno_schemas::{Command, Desired, FabricDesired, Generation, Preview};
use futures::future::join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error};
use quick_xml::events::{BytesText, Event};
use quick_xml::{Reader, Writer};
use serde::Serialize;

use crate::apply::{api_of, name_of, resource_of};
use crate::inspect::output::name;
use crate::inspect::schema::Schemas;
use crate::inspect::source::Source;
use crate::sysdump::redact;

/// The effect of a change, as `eno plan -o json` writes it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plan {
    /// The predicted changes.
    #[serde(flatten)]
    pub forecast: Forecast,
    /// Objects that the API server refuses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// The drivers' previews for the switches' present configurations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub previews: Vec<SwitchPreview>,
    /// Objects of other kinds, which are ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// Resources that could not be read; their objects in the manifests are ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Objects that the user may not write; only the schemas of the CRDs checked them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checked_by_schema: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Refused {
    pub object: String,
    pub reason: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct SwitchPreview {
    pub switch: String,
    #[serde(flatten)]
    pub preview: Preview,
    /// Why its driver did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<String>,
}

impl Plan {
    /// Something would fail.
    pub(crate) fn fails(&self) -> bool {
        let refuses = |preview: &Preview| !preview.rejected.is_empty() || preview.failure.is_some();
        !self.refused.is_empty()
            || self.forecast.failures().next().is_some()
            || self.previews.iter().any(|switch| refuses(&switch.preview))
    }
}

/// Computes what would change if the objects were applied, or deleted. Objects without a namespace get `namespace`.
/// Nothing is written: the API server checks them in a dry run.
pub(crate) async fn plan(
    source: &Source,
    nats: Option<&Connection>,
    world: &ClusterState,
    namespace: &str,
    mut objects: Vec<DynamicObject>,
    delete: bool,
) -> anyhow::Result<Plan> {
    let left_out = world.left_out().iter().map(ToString::to_string).collect();
    let mut plan = Plan { left_out, ..Plan::default() };
    let schemas = Schemas::new()?;
    let mut changes = Vec::new();
    for object in &mut objects {
        let Some(mut key) = key_of(object) else {
            let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
            plan.others.push(name(kind, object.metadata.namespace.as_deref(), &name_of(object)));
            continue;
        };
        if is_namespaced(key.kind) && key.namespace().is_none() {
            object.metadata.namespace = Some(namespace.to_owned());
            key = key_of(object).context("an object has a name")?;
        }
        if world.may_miss(&key) {
            plan.left_out.push(key.to_string());
            continue;
        }
        if delete {
            changes.push(Change::Delete(key));
            continue;
        }
        let checked = match source {
            // Compared with a dump's object, it is redacted as that one is.
            Source::Dump(_) => redact::object(object)
                .map_err(|error| error.to_string())
                .and_then(|object| schemas.check(key.kind, &object, world.object(&key))),
            Source::Live(client) => match dry_run_apply(client, object).await {
                Err(Unchecked::MayNotWrite) => {
                    plan.checked_by_schema.push(key.to_string());
                    schemas.check(key.kind, object, world.object(&key))
                }
                Err(Unchecked::Refused(reason)) => Err(reason),
                Ok(object) => Ok(object),
            },
        };
        match checked {
            Ok(object) => changes.push(Change::Apply(key, Box::new(object))),
            Err(reason) => plan.refused.push(Refused { object: key.to_string(), reason }),
        }
    }
    let known = world.clone();
    let computing = tokio::task::spawn_blocking(move || forecast::forecast(&known, &changes));
    plan.forecast = computing.await.context("computing the forecast")?;
    if !world.decides_switches() {
        // The desired state lacks the unread objects, so a driver's preview would remove them.
        plan.forecast.switches.clear();
        plan.forecast.nodes.clear();
    } else if let Some(nats) = nats {
        plan.previews = previews(nats, &plan.forecast.switches).await;
    }
    Ok(plan)
}

/// Why the API server returned no object.
enum Unchecked {
    /// The user may not write such objects.
    MayNotWrite,
    /// The API server refuses the object with this message.
    Refused(String),
}

impl From<Error> for Unchecked {
    fn from(error: Error) -> Self {
        Self::Refused(match error {
            Error::Api(status) => status.message,
            error => error.to_string(),
        })
    }
}

/// The object as the API server would store it, with defaults, from a dry run.
async fn dry_run_apply(client: &Client, object: &DynamicObject) -> Result<DynamicObject, Unchecked> {
    let api = api_of(client, object).map_err(|error| Unchecked::Refused(error.to_string()))?;
    let params = PatchParams { dry_run: true, ..PatchParams::apply("eno-plan").force() };
    let name = object.metadata.name.as_deref().unwrap_or_default();
    match api.patch(name, &params, &Patch::Apply(object)).await {
        Ok(stored) => Ok(stored),
        // The namespace does not exist yet, so the object is used unchanged.
        Err(Error::Api(status)) if status.code == 404 && object.metadata.namespace.is_some() => {
            Ok(object.clone())
        }
        // A quota or a policy may have refused it instead.
        Err(Error::Api(status)) if status.code == 403 && !may_write(client, object).await? => {
            Err(Unchecked::MayNotWrite)
        }
        Err(error) => Err(error.into()),
    }
}

/// Asks the API server whether the user may apply such an object, which may need the permission to create it.
async fn may_write(client: &Client, object: &DynamicObject) -> Result<bool, Unchecked> {
    let resource = resource_of(object).map_err(|error| Unchecked::Refused(error.to_string()))?;
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    for verb in ["patch", "create"] {
        let attributes = ResourceAttributes {
            group: Some(resource.group.clone()),
            resource: Some(resource.plural.clone()),
            namespace: object.metadata.namespace.clone(),
            name: object.metadata.name.clone().filter(|_| verb == "patch"),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let review = reviews.create(&PostParams::default(), &review).await?;
        if !review.status.is_some_and(|status| status.allowed) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Requests previews from the drivers of the switches that change, all at once.
async fn previews(nats: &Connection, switches: &[SwitchForecast]) -> Vec<SwitchPreview> {
    let changing = switches.iter().filter_map(|switch| Some((switch, switch.desired.clone()?)));
    let asking = changing.map(|(switch, desired)| async move {
        let answer = preview(nats, &switch.driver, &switch.name, desired).await;
        let (preview, unanswered) = match answer {
            Ok(preview) => (preview, None),
            Err(error) => (Preview::default(), Some(error.to_string())),
        };
        SwitchPreview { switch: switch.name.clone(), preview, unanswered }
    });
    join_all(asking).await
}

/// Asks a driver what it would do to a switch. Nothing is changed.
pub(crate) async fn preview(
    nats: &Connection,
    driver: &str,
    switch: &str,
    mut desired: FabricDesired,
) -> Result<Preview, trace::TraceError> {
    let messages = Messages::Nats(Box::new(nats.clone()));
    // Only the engine knows the cluster's identifier on switches; a switch without a command has none of its VLANs.
    if let Some(Command { desired: Desired::Fabric(last), .. }) =
        trace::command(&messages, driver, switch).await?
    {
        (desired.cluster, desired.cluster_uid) = (last.cluster, last.cluster_uid);
    }
    let desired = Desired::Fabric(desired);
    let command = Command {
        driver: driver.to_owned(),
        target: switch.to_owned(),
        generation: Generation { term: 0, sequence: 0, hash: desired.hash() },
        desired,
        transaction: None,
    };
    trace::preview(nats, &command).await
}

/// An edit with a line for each element, if it is XML, or for each member, if it is JSON. Any other text stays as it is.
pub(crate) fn indented(edit: &str) -> String {
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(edit) {
        return format!("{value:#}");
    }
    indented_xml(edit).unwrap_or_else(|| edit.to_owned())
}

fn indented_xml(edit: &str) -> Option<String> {
    let mut reader = Reader::from_str(edit);
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    loop {
        let event = match reader.read_event().ok()? {
            Event::Eof => break,
            // The writer would begin a line for it.
            Event::GeneralRef(reference) => {
                let name = reference.xml10_content();
                Event::Text(BytesText::from_escaped(format!("&{name};")))
            }
            event => event,
        };
        writer.write_event(event).ok()?;
    }
    String::from_utf8(writer.into_inner()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_indented_by_their_form() {
        let xml = "<config xmlns=\"urn:x\"><vlan><id>5</id><name>a &amp; b</name></vlan></config>";
        let lines = "<config xmlns=\"urn:x\">\n  <vlan>\n    <id>5</id>\n    <name>a &amp; b</name>\n  </vlan>\n</config>";
        assert_eq!(indented(xml), lines);
        assert_eq!(indented("{\"a\":[1]}"), "{\n  \"a\": [\n    1\n  ]\n}");
        assert_eq!(indented("set vlans 5"), "set vlans 5");
    }
}
