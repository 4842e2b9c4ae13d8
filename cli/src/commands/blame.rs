//! `eno blame`.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail, ensure};
use eno_engine::forecast::{Key, Kind};
use eno_engine::trace;
use eno_schemas::{Applied, Carried, FabricDesired, VlanId, VlanSet};
use serde::Serialize;

use crate::inspect::output::{Format, table};
use crate::inspect::path::fabric;
use crate::inspect::source::{FromArgs, Source};
use crate::inspect::{ClusterArgs, NatsClientArgs, left_out};

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
    cluster: ClusterArgs,
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

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    vlan: VlanId,
    /// The objects that request it.
    wanted_by: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

pub(super) async fn run(args: BlameArgs) -> anyhow::Result<()> {
    let source = Source::open(&args.from, &args.cluster).await?;
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
    let carried = match &messages {
        Some(messages) => {
            match trace::report(messages, driver, &args.device).await?.and_then(|report| report.applied) {
                Some(Applied::Fabric { carried, .. }) => {
                    Some(carried.get(&args.port).cloned().unwrap_or_default())
                }
                _ => None,
            }
        }
        None => None,
    };
    let vlans = blame(fabric, &args.port, carried.as_ref());
    let complete = !wanted.incomplete.contains(&args.device);
    let no_owner = if complete { "foreign" } else { "not known" };
    args.output.print(&Blame { vlans, complete, left_out }, |blame| {
        table(
            ["VLAN", "WANTED BY", ""],
            blame.vlans.iter().map(|line| {
                let by = if line.wanted_by.is_empty() { no_owner.into() } else { line.wanted_by.join(" ") };
                [line.vlan.to_string(), by, line.note.unwrap_or_default().into()]
            }),
        );
        match carried {
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

/// The VLANs of a port with their owners, in ascending order.
fn blame(fabric: &FabricDesired, port: &str, carried: Option<&Carried>) -> Vec<Line> {
    let wanted = fabric.ports.iter().find(|one| one.name == port).map(|one| &one.vlans);
    let is_carried =
        |vid: VlanId| carried.is_some_and(|carried| carried.open || carried.tagged.contains(vid));
    let mut vids: BTreeSet<VlanId> = wanted.into_iter().flat_map(VlanSet::iter).collect();
    if let Some(carried) = carried {
        vids.extend(carried.tagged.iter().chain(carried.untagged));
    }
    let line = |vid: VlanId| {
        let is_wanted = wanted.is_some_and(|vlans| vlans.contains(vid));
        let owners = fabric.vlans.iter().find(|vlan| is_wanted && vlan.vid == vid);
        let note = match carried {
            Some(carried) if carried.untagged == Some(vid) => Some("untagged"),
            Some(_) if is_wanted && !is_carried(vid) => Some("not there yet"),
            _ => None,
        };
        Line { vlan: vid, wanted_by: owners.map(|vlan| vlan.owners.clone()).unwrap_or_default(), note }
    };
    vids.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use eno_schemas::{Device, Drift, FabricPort, FabricVlan, PortMode};

    use super::*;

    #[test]
    fn blame_separates_managed_and_foreign_vlans() {
        let set = |text: &str| text.parse::<VlanSet>().expect(text);
        let vid = |id| VlanId::new(id).expect("a VLAN ID");
        let fabric = FabricDesired {
            cluster: "c".into(),
            cluster_uid: None,
            device: Device {
                address: String::new(),
                dialect: None,
                credential: None,
                host_key: None,
                drift: Drift::Repair,
                audit_interval: None,
                adopt: VlanSet::EMPTY,
                neutron: None,
            },
            vlans: vec![
                FabricVlan { vid: vid(10), owners: vec!["L2Service/a".into(), "L2Service/b".into()] },
                FabricVlan { vid: vid(11), owners: vec!["L2Service/c".into()] },
            ],
            ports: vec![FabricPort {
                name: "p".into(),
                lag: None,
                mode: PortMode::Keep,
                vlans: set("10-11"),
                closed: false,
                before: None,
            }],
        };
        let carried = Carried { tagged: set("10,20"), untagged: Some(vid(1)), open: false };
        let lines: Vec<_> = blame(&fabric, "p", Some(&carried))
            .into_iter()
            .map(|line| (line.vlan.get(), line.wanted_by.len(), line.note))
            .collect();
        let expected =
            [(1, 0, Some("untagged")), (10, 2, None), (11, 1, Some("not there yet")), (20, 0, None)];
        assert_eq!(lines, expected);
        assert_eq!(blame(&fabric, "p", None).len(), 2);
    }
}
