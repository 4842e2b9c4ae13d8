//! `eno adopt`.

use anyhow::{Context as _, anyhow, bail};
use eno_nbi_crds::FabricDevice;
use eno_schemas::VlanSet;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::apply::reason;
use crate::inspect::ClusterArgs;

/// Take over VLANs that exist on a switch under other names: where the operator wants one of them, it renames it and
/// owns it from then on, which includes that it is removed with its last user.
///
/// It adds them to Adopt of the FabricDevice. Look first with `eno plan` and `eno blame`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno adopt leaf1 100 200-210
  eno adopt leaf1 200 --undo")]
pub(super) struct AdoptArgs {
    /// The FabricDevice.
    device: String,
    /// VLAN IDs and ranges of them, such as 100 or 200-210.
    #[arg(required = true, value_name = "VLANS")]
    vlans: Vec<VlanSet>,
    /// Take them out of Adopt instead. VLANs that were taken over already stay the operator's.
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Tries to change the FabricDevice, which others change too: the engine writes its status at any time.
const TRIES: usize = 10;

pub(super) async fn run(args: AdoptArgs) -> anyhow::Result<()> {
    let devices: Api<FabricDevice> = Api::all(args.cluster.client().await?);
    let named = args.vlans.iter().fold(VlanSet::EMPTY, |all, more| all.union(more));
    let params = PatchParams { field_manager: Some("eno-adopt".into()), ..PatchParams::default() };
    for _ in 0..TRIES {
        let device = devices.get(&args.device).await;
        let device =
            device.map_err(|error| anyhow!("reading FabricDevice {}: {}", args.device, reason(&error)))?;
        let before: VlanSet = match device.spec.adopt.as_deref() {
            Some(text) => text.parse().context("Adopt of the FabricDevice")?,
            None => VlanSet::EMPTY,
        };
        let after = if args.undo { before.difference(&named) } else { before.union(&named) };
        if after == before {
            bail!("nothing to do: FabricDevice {} adopts {}", args.device, shown(&before));
        }
        // The resource version makes the patch fail if the device has changed since it was read.
        let adopt = (!after.is_empty()).then(|| after.to_string());
        let version = device.metadata.resource_version.as_deref();
        let patch = json!({ "metadata": { "resourceVersion": version }, "spec": { "Adopt": adopt } });
        match devices.patch(&args.device, &params, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(answer)) if answer.is_conflict() => {}
            Err(error) => bail!("changing FabricDevice {}: {}", args.device, reason(&error)),
            Ok(_) => {
                crate::outln!("FabricDevice {} adopts {}", args.device, shown(&after));
                return Ok(());
            }
        }
    }
    bail!("changing FabricDevice {}: others changed it {TRIES} times meanwhile; try again", args.device)
}

fn shown(vlans: &VlanSet) -> String {
    if vlans.is_empty() { "no VLANs".into() } else { format!("VLANs {vlans}") }
}
