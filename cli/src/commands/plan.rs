//! `eno plan`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use eno_engine::forecast::{
    self, Action, Change, Evaluation, Forecast, ObjectForecast, SwitchForecast, is_namespaced, key_of,
};
use eno_engine::trace::{self, Messages};
use eno_sbi::nats::Connection;
use eno_schemas::{Command, Desired, Generation, Preview};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error};
use quick_xml::events::{BytesText, Event};
use quick_xml::{Reader, Writer};
use serde::Serialize;

use crate::apply::{api_of, name_of, resource_of};
use crate::inspect::output::{Format, name, table};
use crate::inspect::schema::Schemas;
use crate::inspect::source::{FromArgs, Source};
use crate::inspect::{ClusterArgs, NatsClientArgs, left_out, manifests};
use crate::sysdump::redact;

/// The exit code when something would fail.
const EXIT_WOULD_FAIL: u8 = 2;

/// Show what would change if these manifests were applied, or deleted. Nothing is changed.
///
/// The API server checks each object without storing it; without the right to write, the schemas of the CRDs do. What
/// follows from them is worked out as the engine does it.
/// Where NATS can be asked, the drivers of the switches say what they would send, as the switches are now.
///
/// The exit code is 2 when something would fail.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno plan -f network.yaml
  eno plan -f network.yaml --delete
  eno plan -f network.yaml -o xml")]
pub(super) struct PlanArgs {
    /// Files or directories with manifests; - is standard input.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true, num_args = 1..)]
    files: Vec<PathBuf>,
    /// Show what would change if they were deleted.
    #[arg(long)]
    delete: bool,
    /// The namespace of objects that name none; absent: that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,
    /// How it is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    from: FromArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    messages: NatsClientArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people.
    #[default]
    Table,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// What the drivers would send to each switch, in their protocol's own form. It needs NATS.
    Xml,
}

/// The output of the command.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    /// The predicted changes.
    #[serde(flatten)]
    forecast: Forecast,
    /// Objects that the API server refuses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<Refused>,
    /// The drivers' previews for the switches' present configurations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    previews: Vec<SwitchPreview>,
    /// Objects of other kinds, which are ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<String>,
    /// Resources that could not be read; their objects in the manifests are ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
    /// Objects that the user may not write; only the schemas of the CRDs checked them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checked_by_schema: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Refused {
    object: String,
    reason: String,
}

#[derive(Debug, Serialize)]
struct SwitchPreview {
    switch: String,
    #[serde(flatten)]
    preview: Preview,
}

impl Plan {
    fn fails(&self) -> bool {
        let refuses = |preview: &Preview| !preview.rejected.is_empty() || preview.failure.is_some();
        !self.refused.is_empty()
            || self.forecast.failures().next().is_some()
            || self.previews.iter().any(|switch| refuses(&switch.preview))
    }
}

pub(super) async fn run(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let mut objects = manifests::read(&args.files)?;
    let source = Source::open(&args.from, &args.cluster).await?;
    let nats = match (&source, args.output) {
        (Source::Dump(_), Output::Xml) => {
            bail!(
                "leave out --from: only the driver of a switch knows its edits, and it reads the switch for them"
            )
        }
        (Source::Dump(_), _) => None,
        (Source::Live(client), Output::Xml) => Some(args.messages.connect_required(client).await?),
        (Source::Live(client), _) => args.messages.connect(client).await?,
    };
    let namespace = args.namespace.as_deref().unwrap_or(source.namespace());
    let world = source.cluster_state(namespace).await?;
    let mut plan = Plan { left_out: left_out(&world), ..Plan::default() };
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
            eprintln!("eno: {key} is left out, since you may not read what is there");
            plan.left_out.push(key.to_string());
            continue;
        }
        if args.delete {
            changes.push(Change::Delete(key));
            continue;
        }
        let checked = match &source {
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
    if !plan.checked_by_schema.is_empty() {
        eprintln!(
            "eno: you may not write {}: checked by the schemas of the CRDs that this eno carries; CEL rules, admission \
             policies and quotas were not checked",
            plan.checked_by_schema.join(", ")
        );
    }
    if let Source::Dump(_) = source {
        eprintln!(
            "eno: checked by the schemas of the CRDs that this eno carries; CEL rules, admission policies and quotas were \
             not checked, and no driver was asked what it would send or refuse"
        );
    }
    plan.forecast = forecast::forecast(&world, &changes);
    if !world.decides_switches() {
        // The desired state lacks the unread objects, so a driver's preview would remove them.
        let lacking = plan.left_out.join(", ");
        ensure!(
            !matches!(args.output, Output::Xml),
            "bind ClusterRole eno-viewer: without {lacking}, what the switches would get is not known"
        );
        eprintln!("eno: what switches and nodes would get is not known, since you may not list {lacking}");
        plan.forecast.switches.clear();
        plan.forecast.nodes.clear();
    } else if let Some(nats) = &nats {
        plan.previews = previews(nats, &plan.forecast.switches).await?;
    }
    match args.output {
        Output::Table => tables(&plan, nats.is_some() || matches!(source, Source::Dump(_))),
        Output::Json => Format::Json.print(&plan, |_| ())?,
        Output::Yaml => Format::Yaml.print(&plan, |_| ())?,
        Output::Xml => print_edits(&plan),
    }
    Ok(if plan.fails() { ExitCode::from(EXIT_WOULD_FAIL) } else { ExitCode::SUCCESS })
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

/// Requests previews from the drivers of the switches that change.
async fn previews(nats: &Connection, switches: &[SwitchForecast]) -> anyhow::Result<Vec<SwitchPreview>> {
    let messages = Messages::Nats(Box::new(nats.clone()));
    let mut previews_found = Vec::new();
    for switch in switches {
        let Some(mut desired) = switch.desired.clone() else { continue };
        // Only the engine knows the cluster's identifier on switches; a switch without a command has none of its VLANs.
        if let Some(Command { desired: Desired::Fabric(last), .. }) =
            trace::command(&messages, &switch.driver, &switch.name).await?
        {
            (desired.cluster, desired.cluster_uid) = (last.cluster, last.cluster_uid);
        }
        let desired = Desired::Fabric(desired);
        let command = Command {
            driver: switch.driver.clone(),
            target: switch.name.clone(),
            generation: Generation { term: 0, sequence: 0, hash: desired.hash() },
            desired,
            transaction: None,
        };
        let preview = match trace::preview(nats, &command).await {
            Ok(preview) => preview,
            Err(error) => {
                eprintln!("eno: switch {}: its driver does not say what it would do: {error}", switch.name);
                continue;
            }
        };
        previews_found.push(SwitchPreview { switch: switch.name.clone(), preview });
    }
    Ok(previews_found)
}

fn print_edits(plan: &Plan) {
    for SwitchPreview { switch, preview } in &plan.previews {
        crate::outln!("<!-- {} -->", switch.replace("--", "- -"));
        preview.edits.iter().for_each(|edit| crate::outln!("{}", indented(edit)));
    }
}

/// An edit with a line for each element, if it is XML, or for each member, if it is JSON. Any other text stays as it is.
fn indented(edit: &str) -> String {
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

fn tables(plan: &Plan, nats_known: bool) {
    let Plan { forecast, .. } = plan;
    let phase = |evaluation: &Option<Evaluation>| {
        let phase = evaluation
            .as_ref()
            .map(|evaluation| evaluation.phase.map_or("-".into(), |phase| phase.to_string()));
        phase.unwrap_or_else(|| "-".into())
    };
    let row = |object: &ObjectForecast| {
        let message = object.after.as_ref().map(|after| after.message.clone());
        [
            name(object.kind, object.namespace.as_deref(), &object.name),
            act(object.act).into(),
            phase(&object.before),
            phase(&object.after),
            message.unwrap_or_default(),
        ]
    };
    table(["OBJECT", "CHANGE", "IS", "WOULD BE", "BECAUSE"], forecast.objects.iter().map(row));
    let mut rows: Vec<[String; 4]> = Vec::new();
    for switch in &forecast.switches {
        let waits = if switch.waits { "once it answers" } else { "" };
        let mut row = |what: String, port: &str| {
            rows.push([switch.name.clone(), port.to_owned(), what, waits.to_owned()]);
        };
        if !switch.make.is_empty() {
            row(format!("make VLAN {}", switch.make), "");
        }
        if !switch.delete.is_empty() {
            row(format!("delete VLAN {}", switch.delete), "");
        }
        for (port, change) in &switch.ports {
            if !change.add.is_empty() {
                row(format!("add VLAN {}", change.add), port);
            }
            if !change.remove.is_empty() {
                row(format!("remove VLAN {}", change.remove), port);
            }
        }
    }
    table(["SWITCH", "PORT", "CHANGE", ""], rows);
    let nads = forecast.network_attachment_definitions.iter();
    table(
        ["NETWORK ATTACHMENT DEFINITION", "CHANGE"],
        nads.map(|nad| [format!("{}/{}", nad.namespace, nad.name), act(nad.act).into()]),
    );
    let networks = forecast.nodes.iter().flat_map(|node| {
        node.networks
            .iter()
            .map(|(network, change)| [node.name.clone(), network.clone(), act(*change).into()])
    });
    table(["NODE", "NETWORK", "CHANGE"], networks);
    let interfaces = forecast.pods.iter().flat_map(|pod| {
        pod.interfaces.iter().map(|interface| {
            [
                format!("{}/{}", pod.namespace, pod.name),
                interface.name.clone(),
                act(interface.act).into(),
                interface.owner.clone(),
            ]
        })
    });
    table(["POD", "INTERFACE", "CHANGE", "ASKED FOR BY"], interfaces);
    let refused = plan.previews.iter().flat_map(|SwitchPreview { switch, preview }| {
        let items =
            preview.rejected.iter().map(|rejection| (rejection.item.to_string(), rejection.reason.clone()));
        let whole = preview.failure.iter().map(|failure| ("the switch".to_owned(), failure.reason.clone()));
        items.chain(whole).map(|(item, reason)| [switch.clone(), item, reason]).collect::<Vec<_>>()
    });
    table(["SWITCH", "WOULD REFUSE", "BECAUSE"], refused);
    table(
        ["OBJECT", "THE API SERVER REFUSES IT"],
        plan.refused.iter().map(|refused| [refused.object.clone(), refused.reason.clone()]),
    );
    for other in &plan.others {
        crate::outln!("{other} is none of the operator's objects and was not looked at.");
    }
    if !nats_known && !forecast.switches.is_empty() {
        crate::outln!(
            "The switches were not asked, since no URL of NATS is known: what they hold of others is not known."
        );
    }
    if forecast.objects.is_empty() && plan.refused.is_empty() {
        crate::outln!("Nothing would change.");
    }
}

fn act(act: Action) -> &'static str {
    match act {
        Action::Create => "create",
        Action::Change => "change",
        Action::Delete => "delete",
        Action::None => "-",
    }
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
