//! `eno trace`.

use eno_engine::forecast::ClusterState;
use serde::Serialize;

use crate::inspect::history::{Subject, Whose, of_object, targets};
use crate::inspect::output::{Format, table};
use crate::inspect::path::fabric;
use crate::inspect::source::{FromArgs, Source};
use crate::inspect::timeline::Entry;
use crate::inspect::{NatsClientArgs, left_out, parse_object};
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
    let source = Source::open(&args.from).await?;
    let namespace = args.namespace.as_deref().unwrap_or(source.namespace());
    let key = parse_object(&args.object, namespace)?;
    let messages = source.messages_required(&args.messages).await?;
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
    let subject = Subject {
        targets: targets(&world, &fabric, &key),
        key: key.clone(),
        // Who asks has a key of NATS, and may read all of it.
        whose: Whose::Any,
        sees_texts: true,
    };
    let entries = of_object(&messages, &subject).await?;
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
