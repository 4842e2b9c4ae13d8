//! `eno addresses`.

use std::net::IpAddr;

use crate::inspect::addresses::{Addresses, PoolOwner, addresses};
use crate::inspect::left_out;
use crate::inspect::output::{Format, table};
use crate::inspect::source::{FromArgs, Source};

/// Show the pools of addresses, the free VLAN IDs and, with -o wide, the addresses of pods; or who has one address.
///
/// The addresses that the engine hands out are in the statuses of its objects. Those of an IPAM plugin are known where
/// Multus writes them on the pods.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno addresses
  eno addresses 10.1.2.3
  eno addresses -o wide")]
pub(super) struct AddressesArgs {
    /// Show only who has this address.
    address: Option<IpAddr>,
    /// How it is written.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    from: FromArgs,
}

pub(super) async fn run(args: AddressesArgs) -> anyhow::Result<()> {
    let source = Source::open(&args.from).await?;
    let world = source.cluster_state(source.namespace()).await?;
    let left_out = left_out(&world);
    let mut found = Addresses { left_out, ..addresses(&world, &source.pods().await?) };
    if let Some(address) = args.address {
        let lines = found.about(address);
        found.leases.retain(|lease| lease.address == address);
        let contains = |network: ipnet::IpNet| network.contains(&address);
        found.subnets.retain(|subnet| subnet.network.is_some_and(contains));
        found.vlans.clear();
        found.vlan_holders.clear();
        return args.output.print(&found, |_| lines.iter().for_each(|line| crate::outln!("{line}")));
    }
    let is_wide = args.output == Format::Wide;
    args.output.print(&found, |found| show(found, is_wide))
}

fn show(found: &Addresses, is_wide: bool) {
    let Addresses { subnets, vlans, leases, vlan_holders, .. } = found;
    let pools = subnets.iter().flat_map(|subnet| {
        subnet.pools.iter().map(|pool| {
            [
                subnet.subnet.clone(),
                match pool.by {
                    PoolOwner::Ipam => subnet.ipam.clone(),
                    PoolOwner::Engine => "engine".to_owned(),
                },
                format!("{}-{}", pool.start, pool.end),
                pool.size.map_or_else(|| "over 2^64".to_owned(), |size| size.to_string()),
                pool.held.to_string(),
                subnet.services.join(" "),
            ]
        })
    });
    table(["SUBNET", "BY", "POOL", "SIZE", "HELD", "L2SERVICES"], pools);
    let vlans = vlans.iter().map(|vlans| {
        let counted = |ids: &eno_schemas::VlanSet| match ids.len() {
            0 => "none".to_owned(),
            count => format!("{count}: {ids}"),
        };
        [vlans.physical_network.clone(), counted(&vlans.used), counted(&vlans.free)]
    });
    table(["PHYSICAL NETWORK", "VLAN IDS NAMED", "FREE"], vlans);
    if is_wide {
        let holders = vlan_holders.iter().map(|(id, holders)| [id.to_string(), holders.join(" ")]);
        table(["VLAN ID", "NAMED BY"], holders);
        let rows = leases.iter().map(|lease| {
            [
                lease.address.to_string(),
                lease.pod.clone(),
                lease.interface.clone(),
                lease.given_by.clone(),
                lease.subnet.clone().unwrap_or_default(),
            ]
        });
        table(["ADDRESS", "POD", "INTERFACE", "GIVEN BY", "SUBNET"], rows);
    }
    crate::outln!("known addresses of pods: {}", leases.len());
}
