//! Checks of the example on the switches and in the cluster, and of its removal.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use comfy_table::Table;
use eno::screen::bordered_table;
use eno_nbi_crds::{DeviceRole, FabricDevice};
use eno_simulator::{View, VlanSet};
use futures::future::try_join_all;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use crate::sandbox::Sandbox;
use crate::switch;
use eno::apply::{nad_resource, name_of};

fn kind_of(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

/// The VLANs of the example.
pub(super) fn vlan_ids(objects: &[DynamicObject]) -> VlanSet {
    let services = objects.iter().filter(|object| kind_of(object) == "L2Service");
    let ids =
        services.filter_map(|service| service.data.pointer("/spec/SegmentationID").and_then(Value::as_u64));
    ids.filter_map(|id| u16::try_from(id).ok()).collect()
}

/// All ports of the FabricDevices with the VLANs that the switches carry. Each must carry all of the example's VLANs,
/// since its services reach all nodes, the gateway and all links between switches. None is led to a router.
pub(super) async fn ports(
    sandbox: &Sandbox,
    http: &reqwest::Client,
    wanted: &VlanSet,
) -> anyhow::Result<Table> {
    let devices: Api<FabricDevice> = Api::all(sandbox.client());
    let devices = devices.list(&ListParams::default()).await.context("listing FabricDevices")?;
    let is_router = |name: &str| {
        devices.iter().any(|device| device.name_any() == name && device.spec.role == DeviceRole::Router)
    };
    let none = VlanSet::default();
    let mut table = bordered_table(&["switch", "port", "leads to", "VLANs", "named"]);
    let mut differences = Vec::new();
    for device in &devices {
        let name = device.name_any();
        let info = sandbox.switch(&name).with_context(|| format!("no simulated switch is named {name}"))?;
        let view = switch::running(http, info).await.with_context(|| format!("asking {name}"))?.view;
        for port in &device.spec.ports {
            let leads_to = match (&port.node, &port.physical_nw, &port.device) {
                (Some(node), ..) => format!("node {node}"),
                (_, Some(network), _) => format!("network {network}"),
                (.., Some(device)) => format!("switch {device}"),
                _ => String::new(),
            };
            let carried = view.ports.get(&port.name).map(|port| port.vlans.clone()).unwrap_or_default();
            let to_router = is_router(&name) || port.device.as_deref().is_some_and(is_router);
            let expected = if to_router { &none } else { wanted };
            if carried != *expected {
                differences.push(format!("{name} {} carries {carried:?}, not {expected}", port.name));
            }
            table.add_row([&name, &port.name, &leads_to, &carried.to_string(), &names(&view, &carried)]);
        }
    }
    ensure!(
        differences.is_empty(),
        "the fabric is not as it should be:\n  {}\n{table}",
        differences.join("\n  ")
    );
    Ok(table)
}

/// `first … last` of the switch's names of these VLANs.
fn names(view: &View, vlans: &VlanSet) -> String {
    let name = |vid: u16| view.vlans.get(&vid).and_then(|vlan| vlan.name.clone()).unwrap_or_default();
    match (vlans.iter().next(), vlans.iter().last()) {
        (Some(first), Some(last)) if first != last => format!("{} … {}", name(first), name(last)),
        (Some(only), _) => name(only),
        _ => String::new(),
    }
}

async fn all_nads(client: &Client) -> anyhow::Result<BTreeMap<String, DynamicObject>> {
    let nads: Api<DynamicObject> = Api::all_with(client.clone(), &nad_resource());
    let list = nads.list(&ListParams::default()).await.context("listing NetworkAttachmentDefinitions")?;
    Ok(list.into_iter().map(|nad| (name_of(&nad), nad)).collect())
}

/// A table of the attachments' NetworkAttachmentDefinitions and their configurations.
pub(super) async fn nads(client: &Client, objects: &[DynamicObject]) -> anyhow::Result<Table> {
    let nads = all_nads(client).await?;
    let mut table = bordered_table(&["name", "configuration"]);
    for attachment in objects.iter().filter(|object| kind_of(object) == "L2ServiceAttachment") {
        let name = name_of(attachment);
        let nad =
            nads.get(&name).with_context(|| format!("there is no NetworkAttachmentDefinition {name}"))?;
        let config = nad.data.pointer("/spec/config").and_then(Value::as_str).unwrap_or_default();
        serde_json::from_str::<Value>(config)
            .with_context(|| format!("the configuration of {name} is not JSON"))?;
        table.add_row([name.as_str(), config]);
    }
    Ok(table)
}

/// Waits until no switch has a VLAN of the operator; the example's NetworkAttachmentDefinitions must be gone.
pub(super) async fn nothing_left(
    sandbox: &Sandbox,
    client: &Client,
    http: &reqwest::Client,
    objects: &[DynamicObject],
    limit: Duration,
) -> anyhow::Result<()> {
    let leftover = all_nads(client).await?;
    let attachments = objects.iter().filter(|object| kind_of(object) == "L2ServiceAttachment").map(name_of);
    let leftover: Vec<_> = attachments.filter(|name| leftover.contains_key(name)).collect();
    ensure!(leftover.is_empty(), "these NetworkAttachmentDefinitions are left: {}", leftover.join(", "));
    let empty =
        try_join_all(sandbox.switches().iter().map(|info| switch::until_without_managed_vlans(http, info)));
    match tokio::time::timeout(limit, empty).await {
        Ok(result) => result.map(drop).context("asking the switches"),
        Err(_) => bail!("VLANs are left on the switches after {} s", limit.as_secs()),
    }
}
