//! `eno plan`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, ensure};
use eno_engine::forecast::{Action, Evaluation, ObjectForecast, RoutedForecast};

use crate::inspect::output::{Format, name, table};
use crate::inspect::plan::{Plan, SwitchPreview, indented, plan};
use crate::inspect::source::{FromArgs, Source};
use crate::inspect::{NatsClientArgs, left_out, manifests};

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

pub(super) async fn run(args: PlanArgs) -> anyhow::Result<ExitCode> {
    let objects = manifests::read(&args.files)?;
    let source = Source::open(&args.from).await?;
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
    let read = world.left_out().len();
    left_out(&world);
    let plan = plan(&source, nats.as_ref(), &world, namespace, objects, args.delete).await?;
    for object in plan.left_out.iter().skip(read) {
        eprintln!("eno: {object} is left out, since you may not read what is there");
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
    if !world.decides_switches() {
        let lacking = plan.left_out.join(", ");
        ensure!(
            !matches!(args.output, Output::Xml),
            "bind ClusterRole eno-viewer: without {lacking}, what the switches would get is not known"
        );
        eprintln!("eno: what switches and nodes would get is not known, since you may not list {lacking}");
    }
    for SwitchPreview { switch, unanswered, .. } in &plan.previews {
        if let Some(error) = unanswered {
            eprintln!("eno: switch {switch}: its driver does not say what it would do: {error}");
        }
    }
    match args.output {
        Output::Table => tables(&plan, nats.is_some() || matches!(source, Source::Dump(_))),
        Output::Json => Format::Json.print(&plan, |_| ())?,
        Output::Yaml => Format::Yaml.print(&plan, |_| ())?,
        Output::Xml => print_edits(&plan),
    }
    Ok(if plan.fails() { ExitCode::from(EXIT_WOULD_FAIL) } else { ExitCode::SUCCESS })
}

fn print_edits(plan: &Plan) {
    for SwitchPreview { switch, preview, .. } in &plan.previews {
        crate::outln!("<!-- {} -->", switch.replace("--", "- -"));
        preview.edits.iter().for_each(|edit| crate::outln!("{}", indented(edit)));
    }
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
        for (vrf, change) in &switch.vrfs {
            row(format!("{} VRF {vrf}", if *change == Action::Create { "make" } else { act(*change) }), "");
        }
        for (vlan, RoutedForecast { act, vrf, addresses }) in &switch.routed {
            let addresses = addresses.join(" ");
            row(
                match act {
                    Action::Create => format!("lead VLAN {vlan} into VRF {vrf} with {addresses}"),
                    Action::Delete => format!("take VLAN {vlan} out of VRF {vrf}"),
                    _ => format!("change how VLAN {vlan} is led into VRF {vrf}: {addresses}"),
                },
                "",
            );
        }
    }
    table(["SWITCH", "PORT", "CHANGE", ""], rows);
    let nads = forecast.network_attachment_definitions.iter();
    table(
        ["NETWORK ATTACHMENT DEFINITION", "CHANGE"],
        nads.map(|nad| [format!("{}/{}", nad.namespace, nad.name), act(nad.act).into()]),
    );
    let peers = forecast.speakers.iter().flat_map(|speaker| {
        let peers = speaker.peers.iter();
        peers.map(|(peer, change)| [speaker.group.clone(), peer.clone(), act(*change).into()])
    });
    table(["BGP SESSION GROUP", "PEER OF THE SPEAKER", "CHANGE"], peers);
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
    let refused = plan.previews.iter().flat_map(|SwitchPreview { switch, preview, .. }| {
        let items =
            preview.rejected.iter().map(|rejection| (rejection.item.to_string(), rejection.reason.clone()));
        let whole = preview.failure.iter().map(|failure| ("the switch".to_owned(), failure.reason.clone()));
        items.chain(whole).map(|(item, reason)| [switch.clone(), item, reason.into()]).collect::<Vec<_>>()
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
