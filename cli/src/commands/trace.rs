//! `eno trace`.

use eno_engine::forecast::{ClusterState, Key, Kind};
use eno_engine::trace::{self, ObjectRef};
use serde::Serialize;

use crate::inspect::output::{Format, table};
use crate::inspect::path::{Fabric, fabric, networks, vlans_and_ports};
use crate::inspect::source::{FromArgs, Source};
use crate::inspect::timeline::{Entry, is_within, of_delivery, of_report, of_transition, unsettled_periods};
use crate::inspect::{ClusterArgs, NatsClientArgs, left_out, parse_object};
use crate::screen::local_time;

/// Show what happened to an object in the last 7 days: its phases, what drivers did on its way meanwhile, and its
/// callbacks. It needs NATS.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno trace l2sa/oam -n cnf-a
  eno trace fd/leaf1 -o json")]
pub(super) struct TraceArgs {
    /// The object, as KIND/NAME. It may be gone.
    #[arg(value_name = "OBJECT", num_args = 1..=2, required = true)]
    object: Vec<String>,
    /// The namespace of an object that has one; absent: that of the kubeconfig.
    #[arg(short, long)]
    namespace: Option<String>,
    /// How it is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    from: FromArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    messages: NatsClientArgs,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Trace {
    entries: Vec<Entry>,
    /// Resources that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

pub(super) async fn run(args: TraceArgs) -> anyhow::Result<()> {
    let source = Source::open(&args.from, &args.cluster).await?;
    let namespace = args.namespace.as_deref().unwrap_or(source.namespace());
    let key = parse_object(&args.object, namespace)?;
    let messages = source.messages_required(&args.messages).await?;
    let subject = ObjectRef { kind: key.kind.as_str(), namespace: key.namespace(), name: &key.name };
    let transitions = trace::transitions(&messages, subject).await?;
    let mut entries: Vec<Entry> = transitions.iter().map(of_transition).collect();
    entries.extend(trace::deliveries(&messages, subject).await?.iter().map(of_delivery));
    let (world, left_out) = match source.cluster_state(namespace).await {
        // NATS alone has the object's own history.
        Err(error) if matches!(source, Source::Dump(_)) => {
            eprintln!("eno: what drivers did is left out: {error:#}");
            let world = ClusterState::unknown();
            let left_out = world.left_out().iter().map(ToString::to_string).collect();
            (world, left_out)
        }
        world => {
            let world = world?;
            let left_out = left_out(&world);
            (world, left_out)
        }
    };
    let fabric = fabric(&world, Some(&messages)).await?;
    let periods = unsettled_periods(&transitions);
    for (driver, target) in targets(&world, &fabric, &key) {
        let reports = trace::reports(&messages, &driver, &target).await?;
        let whole = key.kind == Kind::FabricDevice;
        let meanwhile = reports.iter().filter(|report| whole || is_within(&report.at, &periods));
        entries.extend(meanwhile.filter_map(of_report));
    }
    entries.sort();
    args.output.print(&Trace { entries, left_out }, |Trace { entries, .. }| {
        table(
            ["AT", "WHAT", ""],
            entries.iter().map(|entry| [local_time(&entry.at), entry.what.clone(), entry.text.clone()]),
        );
        if entries.is_empty() {
            crate::outln!("Nothing is known of {key}.");
        }
    })
}

/// The targets of an object, each with its driver. For a deleted object they are unknown, so all switches are taken.
fn targets(world: &ClusterState, fabric: &Fabric, key: &Key) -> Vec<(String, String)> {
    let networks = networks(world, key);
    let network = matches!(key.kind, Kind::L2Service | Kind::L2BridgeDomain | Kind::L2ServiceAttachment);
    let gone = network && world.object(key).is_none();
    let mut targets: Vec<(String, String)> = Vec::new();
    for (switch, (driver, fabric)) in &fabric.switches {
        let itself = key.kind == Kind::FabricDevice && *key.name == **switch;
        if itself || gone || !vlans_and_ports(fabric, &networks).0.is_empty() {
            targets.push((driver.clone(), switch.clone()));
        }
    }
    if let (Kind::L2ServiceAttachment, Some(namespace)) = (key.kind, key.namespace()) {
        targets.push(("nad".into(), format!("{namespace}/{}", key.name)));
    }
    targets
}
