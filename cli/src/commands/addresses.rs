//! `eno addresses`.

use std::collections::BTreeMap;
use std::net::IpAddr;

use eno_engine::forecast::ClusterState;
use eno_engine::trace;

use crate::inspect::addresses::{Addresses, PoolOwner, SubnetUse, addresses};
use crate::inspect::output::{Format, table};
use crate::inspect::path::{NODE_DRIVER, Reports};
use crate::inspect::shares::{FixedAddress, holders};
use crate::inspect::source::{FromArgs, Source};
use crate::inspect::{NatsClientArgs, left_out};

/// Show the pools of addresses, what nodes hold of them, the free VLAN IDs and, with -o wide, the addresses of pods; or
/// who has one address.
///
/// The addresses that the engine hands out are in the statuses of its objects. Those of an IPAM plugin are known where
/// Multus writes them on the pods. Which pods wait for an address with Ipam eno is known if NATS can be asked.
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
    #[command(flatten)]
    messages: NatsClientArgs,
}

pub(super) async fn run(args: AddressesArgs) -> anyhow::Result<()> {
    let source = Source::open(&args.from).await?;
    let world = source.cluster_state(source.namespace()).await?;
    let left_out = left_out(&world);
    let reports = reports(&args, &source, &world).await.unwrap_or_else(|error| {
        eprintln!("eno: left out what only NATS knows: {error:#}");
        Reports::unknown()
    });
    let mut found = Addresses { left_out, ..addresses(&world, &source.pods().await?, &reports) };
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

/// The reports of the agents whose nodes hold addresses, if NATS can be asked.
async fn reports(args: &AddressesArgs, source: &Source, world: &ClusterState) -> anyhow::Result<Reports> {
    let nodes = holders(world);
    if nodes.is_empty() {
        return Ok(Reports::unknown());
    }
    let Some(messages) = source.messages(&args.messages).await? else { return Ok(Reports::unknown()) };
    let mut known = BTreeMap::new();
    for node in nodes {
        if let Some(report) = trace::report(&messages, NODE_DRIVER, &node).await? {
            known.insert((NODE_DRIVER.to_owned(), node), report.into());
        }
    }
    Ok(Reports::new(known, world))
}

fn show(found: &Addresses, is_wide: bool) {
    let Addresses { subnets, vlans, leases, vlan_holders, .. } = found;
    show_pools(subnets);
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

/// The pools, and what nodes hold of those with Ipam eno.
fn show_pools(subnets: &[SubnetUse]) {
    let sized = |size: Option<u64>| size.map_or_else(|| "over 2^64".to_owned(), |size| size.to_string());
    let pools = subnets.iter().flat_map(|subnet| {
        subnet.pools.iter().map(|pool| {
            [
                subnet.subnet.clone(),
                match pool.by {
                    PoolOwner::Ipam => subnet.ipam.clone(),
                    PoolOwner::Engine => "engine".to_owned(),
                },
                format!("{}-{}", pool.start, pool.end),
                sized(pool.size),
                pool.held.to_string(),
                subnet.services.join(" "),
            ]
        })
    });
    table(["SUBNET", "BY", "POOL", "SIZE", "HELD", "L2SERVICES"], pools);
    let shares = subnets.iter().flat_map(|subnet| {
        subnet.nodes.iter().map(move |share| {
            let blocks: Vec<String> = share.blocks.iter().map(ToString::to_string).collect();
            [
                subnet.subnet.clone(),
                share.node.clone().unwrap_or_default(),
                blocks.join(" "),
                sized(share.size),
                share.used.to_string(),
                sized(share.size.map(|size| size.saturating_sub(share.used))),
                share.waiting.map_or_else(|| "unknown".to_owned(), |waiting| waiting.to_string()),
            ]
        })
    });
    table(["SUBNET", "NODE", "HOLDS", "SIZE", "USED", "FREE", "PODS WAITING"], shares);
    let fixed = subnets.iter().flat_map(|subnet| {
        let row = |one: &FixedAddress| {
            [subnet.subnet.clone(), one.address.to_string(), one.pod.clone().unwrap_or_default()]
        };
        subnet.fixed.iter().map(row)
    });
    table(["SUBNET", "FIXED ADDRESS", "FOR"], fixed);
}
