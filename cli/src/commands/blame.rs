//! `eno blame`.

use anyhow::{Context as _, bail, ensure};
use eno_engine::forecast::{Key, Kind};
use eno_engine::observation::Observation;
use eno_schemas::{Applied, Carried};
use serde::Serialize;

use crate::inspect::blame::{Line, blame, routed_states};
use crate::inspect::output::{Format, table};
use crate::inspect::path::{Reports, fabric};
use crate::inspect::source::{FromArgs, Source};
use crate::inspect::{NatsClientArgs, left_out};

/// Say for each VLAN on a port of a switch which objects want it, or that it is foreign.
///
/// What the port carries beside what is wanted is known where NATS can be asked.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno blame leaf1 Ethernet1")]
pub(super) struct BlameArgs {
    /// The FabricDevice.
    device: String,
    /// The port, as the FabricDevice lists it.
    port: String,
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
struct Blame {
    vlans: Vec<Line>,
    /// All objects that could request a VLAN are known, so a VLAN that none requests is foreign.
    complete: bool,
    /// Resources that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
}

pub(super) async fn run(args: BlameArgs) -> anyhow::Result<()> {
    let source = Source::open(&args.from).await?;
    let world = source.cluster_state(source.namespace()).await?;
    let left_out = left_out(&world);
    let device = Key::cluster(Kind::FabricDevice, &args.device.as_str().into());
    if world.may_miss(&device) {
        bail!("bind ClusterRole eno-viewer: {device} may exist, and you may not read it");
    }
    let messages = source.messages(&args.messages).await?;
    let wanted = fabric(&world, messages.as_ref()).await?;
    let (driver, fabric) = wanted
        .switches
        .get(&args.device)
        .with_context(|| format!("there is no FabricDevice {}", args.device))?;
    if !fabric.ports.iter().any(|port| port.name == args.port) {
        let listed = fabric.ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", ");
        ensure!(!listed.is_empty(), "add the port to Ports of FabricDevice {}: it lists none", args.device);
        bail!(
            "name one of the ports {listed}: FabricDevice {} does not list port {}",
            args.device,
            args.port
        );
    }
    let mut observation = Observation::new(&world);
    let reports = Reports::of_switches(&world, &mut observation, &device, messages.as_ref()).await?;
    let is_router = !fabric.device.role.is_switch();
    let carried = match reports.get(driver, &args.device).and_then(|report| report.applied.as_ref()) {
        Some(Applied::Fabric { carried, .. }) if !is_router => {
            Some(carried.get(&args.port).cloned().unwrap_or_default())
        }
        _ => None,
    };
    let states = routed_states(&observation, &reports, (&args.device, fabric), &args.port);
    let vlans = blame(fabric, &args.port, carried.as_ref(), &states);
    let complete = !wanted.incomplete.contains(&args.device);
    let no_owner = if complete { "foreign" } else { "not known" };
    args.output.print(&Blame { vlans, complete, left_out }, |blame| {
        let by =
            |line: &Line| if line.wanted_by.is_empty() { no_owner.into() } else { line.wanted_by.join(" ") };
        let note = |line: &Line| line.note.clone().unwrap_or_default();
        let vlans = blame.vlans.iter();
        if is_router {
            let row = |line: &Line| {
                let vrf = line.vrf.clone().unwrap_or_default();
                [line.vlan.to_string(), by(line), vrf, line.addresses.join(" "), note(line)]
            };
            table(["VLAN", "WANTED BY", "VRF", "ADDRESSES", ""], vlans.map(row));
        } else {
            table(
                ["VLAN", "WANTED BY", ""],
                vlans.map(|line| [line.vlan.to_string(), by(line), note(line)]),
            );
        }
        match carried {
            _ if is_router => {
                crate::outln!(
                    "It is a port of a router: sub-interfaces of others are named only where they are in the way."
                );
            }
            Some(Carried { open: true, .. }) => {
                crate::outln!("It is a trunk without a list, which carries every VLAN.");
            }
            Some(_) => {}
            None => {
                crate::outln!(
                    "What else it carries is not known: the switch was not read, or NATS not asked."
                );
            }
        }
    })
}
