//! `eno status`.

use std::collections::BTreeMap;

use eno_engine::forecast::{ClusterState, Key};
use eno_schemas::Phase;
use serde::Serialize;
use serde_json::Value;

use crate::inspect::output::{Format, table};
use crate::inspect::path::{Hop, fabric, hops, networks};
use crate::inspect::{ClusterArgs, NatsClientArgs, left_out, parse_object};

/// Show how the operator's objects are, or of one object every hop of its way.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// One object, as KIND/NAME; absent: all.
    #[arg(value_name = "OBJECT", num_args = 0..=2)]
    object: Vec<String>,
    /// The namespace of an object that has one, else that of the kubeconfig; without an object: only this namespace.
    #[arg(short, long)]
    namespace: Option<String>,
    /// How it is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    messages: NatsClientArgs,
}

#[derive(Debug, Serialize)]
struct Row {
    object: String,
    phase: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rows {
    objects: Vec<Row>,
    /// Resources that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Detail {
    #[serde(flatten)]
    row: Row,
    /// Resources that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    switches: Vec<Hop>,
}

#[derive(Debug, Serialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    since: String,
}

pub(super) async fn run(args: StatusArgs) -> anyhow::Result<()> {
    let client = args.cluster.client().await?;
    let namespace = args.namespace.as_deref().unwrap_or(client.default_namespace());
    let world = ClusterState::read(&client, namespace).await?;
    let left_out = left_out(&world);
    if args.object.is_empty() {
        let wanted =
            |key: &&Key| args.namespace.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace));
        let objects = world.keys().filter(wanted).map(|key| row(&world, key)).collect();
        return args.output.print(&Rows { objects, left_out }, overview);
    }
    let key = parse_object(&args.object, namespace)?;
    let Some(source) = world.object(&key) else {
        anyhow::ensure!(!world.may_miss(&key), "{key}: you may not read it");
        anyhow::bail!("{key} does not exist")
    };
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let conditions = source.data.pointer("/status/conditions").and_then(Value::as_array);
    let conditions = conditions.into_iter().flatten().map(|condition| Condition {
        kind: text(condition, "type"),
        status: text(condition, "status"),
        reason: text(condition, "reason"),
        message: text(condition, "message"),
        since: text(condition, "lastTransitionTime"),
    });
    let nats = args.messages.connect().await?;
    let networks = networks(&world, &key);
    let fabric = fabric(&world, nats.as_ref()).await?;
    let switches = hops(&fabric, &networks, nats.as_ref()).await?;
    let detail = Detail { row: row(&world, &key), left_out, conditions: conditions.collect(), switches };
    args.output.print(&detail, tables)
}

fn row(world: &ClusterState, key: &Key) -> Row {
    let status = |field: &str| {
        let value = world.object(key).and_then(|object| object.data.pointer(&format!("/status/{field}")));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let phase = Some(status("phase")).filter(|phase| !phase.is_empty()).unwrap_or_else(|| "-".into());
    Row { object: key.to_string(), phase, message: status("message") }
}

/// What is not ready, and a count of the rest.
fn overview(rows: &Rows) {
    let is_ready = |row: &&Row| row.phase == Phase::Ready.as_str();
    let unready = rows.objects.iter().filter(|row| !is_ready(row));
    let cells = |row: &Row| [row.object.clone(), row.phase.clone(), row.message.clone()];
    table(["OBJECT", "PHASE", "MESSAGE"], unready.map(cells));
    let mut ready: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows.objects.iter().filter(is_ready) {
        *ready.entry(row.object.split('/').next().unwrap_or_default()).or_default() += 1;
    }
    let count: usize = ready.values().sum();
    let kinds: Vec<String> = ready.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
    crate::outln!("{count} of {} objects are ready{kinds}", rows.objects.len());
}

fn tables(detail: &Detail) {
    let Row { object, phase, message } = &detail.row;
    let message = if message.is_empty() { String::new() } else { format!(": {message}") };
    crate::outln!("{object} is {phase}{message}\n");
    table(
        ["HOP", "STATUS", "REASON", "SINCE", "MESSAGE"],
        detail.conditions.iter().map(|condition| {
            let Condition { kind, status, reason, message, since } = condition;
            [kind, status, reason, since, message].map(Clone::clone)
        }),
    );
    table(
        ["SWITCH", "VLAN", "PORTS", "IS", "MESSAGE"],
        detail.switches.iter().map(|hop| {
            [
                hop.switch.clone(),
                hop.vlans.to_string(),
                hop.ports.join(" "),
                hop.state.as_str().into(),
                hop.message.clone(),
            ]
        }),
    );
}
