//! `eno status`.

use std::collections::BTreeMap;
use std::pin::pin;

use anyhow::{bail, ensure};
use eno_engine::follow::{ObjectChange, changes};
use eno_engine::forecast::{ClusterState, Key};
use eno_engine::observation::Observation;
use eno_engine::trace::Messages;
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::api::DynamicObject;
use serde::Serialize;

use crate::inspect::output::{Format, table};
use crate::inspect::path::{Hop, Reports, VrfHop, hops, vrf_hops};
use crate::inspect::source::{FromArgs, Source};
use crate::inspect::status::{Condition, Row, conditions, is_settled, row};
use crate::inspect::{NatsClientArgs, left_out, parse_object};
use crate::screen::{age, local_time};

/// Show how the operator's objects are, or of one object every hop of its way.
///
/// Without an object, those that are not ready come first, and the others are counted; -o wide lists them too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno status
  eno status -o wide --watch
  eno status l2sa/oam -n cnf-a")]
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
    /// Go on, and show each change as it comes.
    #[arg(short, long, conflicts_with = "from")]
    pub(super) watch: bool,
    #[command(flatten)]
    from: FromArgs,
    #[command(flatten)]
    messages: NatsClientArgs,
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    vrfs: Vec<VrfHop>,
}

pub(super) async fn run(args: StatusArgs) -> anyhow::Result<()> {
    let source = Source::open(&args.from).await?;
    let namespace = args.namespace.as_deref().unwrap_or(source.namespace());
    let world = source.cluster_state(namespace).await?;
    if args.object.is_empty() {
        return all(&args, &source, namespace, &world).await;
    }
    let key = parse_object(&args.object, namespace)?;
    let messages = source.messages(&args.messages).await?;
    let left_out = left_out(&world);
    let detail = detail(&world, &key, &left_out, messages.as_ref()).await?;
    args.output.print(&detail, |detail| tables(detail, source.now()))?;
    match &source {
        Source::Live(client) if args.watch => {
            watch_one(&args, client, namespace, &world, &key, messages.as_ref()).await
        }
        _ => Ok(()),
    }
}

/// Shows an object again after each change of its status, until it is gone.
async fn watch_one(
    args: &StatusArgs,
    client: &Client,
    namespace: &str,
    world: &ClusterState,
    key: &Key,
    messages: Option<&Messages>,
) -> anyhow::Result<()> {
    let left_out: Vec<String> = world.left_out().iter().map(ToString::to_string).collect();
    let status = |object: &DynamicObject| object.data.get("status").cloned();
    let mut last = world.object(key).map(status);
    let mut changes = pin!(changes(client, namespace, world, Some(key)));
    while let Some(change) = changes.next().await {
        match change {
            ObjectChange::Is(_, object) => {
                let now = Some(status(&object));
                if last == now {
                    continue;
                }
                last = now;
                let shown = async {
                    let world = ClusterState::read(client, namespace).await?;
                    detail(&world, key, &left_out, messages).await
                };
                match shown.await {
                    Ok(detail) => {
                        args.output.print_next(&detail, |detail| tables(detail, Timestamp::now()))?;
                    }
                    Err(error) => eprintln!("eno: {error:#}"),
                }
            }
            ObjectChange::Gone(_) => {
                return args.output.print_next(&gone(key), |row| crate::outln!("{} is gone", row.object));
            }
            failed @ ObjectChange::Failed(..) => report_failure(&failed),
        }
    }
    Ok(())
}

/// Shows all objects, and then their changes.
async fn all(
    args: &StatusArgs,
    source: &Source,
    namespace: &str,
    world: &ClusterState,
) -> anyhow::Result<()> {
    let is_wanted =
        |key: &Key| args.namespace.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace));
    let mut rows: BTreeMap<Key, Row> = BTreeMap::new();
    for key in world.keys().filter(|key| is_wanted(key)) {
        rows.extend(world.object(key).map(|object| (key.clone(), row(key, object))));
    }
    let listed = Rows { objects: rows.values().cloned().collect(), left_out: left_out(world) };
    let is_wide = args.output == Format::Wide;
    args.output.print(&listed, |listed| overview(listed, is_wide, source.now()))?;
    let Source::Live(client) = source else { return Ok(()) };
    if !args.watch {
        return Ok(());
    }
    let mut changes = pin!(changes(client, namespace, world, None));
    while let Some(change) = changes.next().await {
        let row = match change {
            ObjectChange::Is(key, object) if is_wanted(&key) => {
                let row = row(&key, &object);
                if rows.insert(key, row.clone()).as_ref() == Some(&row) {
                    continue;
                }
                row
            }
            ObjectChange::Gone(key) if is_wanted(&key) => {
                rows.remove(&key);
                gone(&key)
            }
            other => {
                report_failure(&other);
                continue;
            }
        };
        args.output.print_next(&row, |row| {
            let at = if is_wide { local_time(&Timestamp::now().to_string()) + "  " } else { String::new() };
            let line = format!("{at}{:<48} {:<12} {}", row.object, row.phase, row.message);
            crate::outln!("{}", line.replace('\n', " ").trim_end());
        })?;
    }
    Ok(())
}

/// The row of an object that is deleted.
fn gone(key: &Key) -> Row {
    Row { object: key.to_string(), phase: "gone".into(), message: String::new(), since: String::new() }
}

fn report_failure(change: &ObjectChange) {
    if let ObjectChange::Failed(kind, error) = change {
        eprintln!("eno: following {kind}: {error}; it is tried again");
    }
}

async fn detail(
    world: &ClusterState,
    key: &Key,
    left_out: &[String],
    messages: Option<&Messages>,
) -> anyhow::Result<Detail> {
    let Some(source) = world.object(key) else {
        ensure!(
            !world.may_miss(key),
            "bind ClusterRole eno-viewer: {key} may exist, and you may not read it"
        );
        bail!("{key} does not exist")
    };
    let mut observation = Observation::new(world);
    let reports = Reports::of_switches(world, &mut observation, key, messages).await?;
    let switches = hops(&observation, &reports, key);
    let vrfs = vrf_hops(&observation, &reports, key);
    Ok(Detail {
        row: row(key, source),
        left_out: left_out.to_vec(),
        conditions: conditions(source),
        switches,
        vrfs,
    })
}

/// What is not ready, and a count of the rest; wide: all rows.
fn overview(rows: &Rows, is_wide: bool, now: Timestamp) {
    let is_ready = |row: &&Row| is_settled(&row.phase);
    let unready = rows.objects.iter().filter(|row| !is_ready(row));
    if is_wide {
        let all = unready.chain(rows.objects.iter().filter(is_ready));
        let cells =
            |row: &Row| [row.object.clone(), row.phase.clone(), age(&row.since, now), row.message.clone()];
        table(["OBJECT", "PHASE", "SINCE", "MESSAGE"], all.map(cells));
    } else {
        let cells = |row: &Row| [row.object.clone(), row.phase.clone(), row.message.clone()];
        table(["OBJECT", "PHASE", "MESSAGE"], unready.map(cells));
    }
    let mut ready: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows.objects.iter().filter(is_ready) {
        *ready.entry(row.object.split('/').next().unwrap_or_default()).or_default() += 1;
    }
    let count: usize = ready.values().sum();
    let kinds: Vec<String> = ready.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
    crate::outln!("{count} of {} objects are ready{kinds}", rows.objects.len());
}

fn tables(detail: &Detail, now: Timestamp) {
    let Row { object, phase, message, .. } = &detail.row;
    let message = if message.is_empty() { String::new() } else { format!(": {message}") };
    crate::outln!("{object} is {phase}{message}\n");
    table(
        ["HOP", "STATUS", "REASON", "SINCE", "MESSAGE"],
        detail.conditions.iter().map(|condition| {
            let Condition { kind, status, reason, message, since } = condition;
            [kind.clone(), status.clone(), reason.clone(), age(since, now), message.clone()]
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
    table(
        ["DEVICE", "VRF", "VLAN", "ADDRESSES", "IS", "MESSAGE"],
        detail.vrfs.iter().map(|hop| {
            [
                hop.device.clone(),
                hop.vrf.clone(),
                hop.vlan.map(|vlan| vlan.to_string()).unwrap_or_default(),
                hop.addresses.join(" "),
                hop.state.as_str().into(),
                hop.message.clone(),
            ]
        }),
    );
}
