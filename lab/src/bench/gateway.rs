//! Measures networks that a gateway router leads into VRFs, against the same networks on a PhysicalNetwork.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use eno_nbi_crds::{
    Callbacks, IpType, Subnet, SubnetSpec, VRF, VRFAttachment, VRFAttachmentSpec, VRFSpec, VrfDevice,
    VrfInterface,
};
use eno_schemas::Ipam;
use kube::Api;
use kube::api::PostParams;
use serde::{Deserialize, Serialize};

use super::BenchArgs;
use super::counters::{self, Cpu};
use super::load::{self, Apis, EVERYWHERE, FIRST_SAMPLE, SERVICES, Tracker, each, name, phases};
use super::report::percentile;
use crate::sandbox::Sandbox;
use crate::switch;
use eno::apply::apply_all;

/// The router, which is linked to the leaf with [`PHYSICAL_NETWORK`].
const ROUTER: &str = "gw1";
const PHYSICAL_NETWORK: &str = "dc-gw";
/// Number of VRFs, which the networks are in by turns.
const VRFS: usize = 100;
/// Number of timed single changes, after those that don't count.
const SAMPLES: usize = 20;
const WARM_UP: usize = 3;

/// Networks in VRFs of one router, against the same on a PhysicalNetwork.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gateway {
    /// Number of networks. Each is a Subnet, an L2Service and an L2ServiceAttachment.
    pub(super) networks: usize,
    /// Number of VRFs.
    pub(super) vrfs: usize,
    /// With a VRFAttachment of each network.
    pub(super) in_vrfs: Side,
    /// With the PhysicalNetwork in each service.
    pub(super) on_physical_network: Side,
}

/// The figures of one kind of networks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Side {
    /// Seconds from the first create to the last `ready`.
    pub(super) create_to_ready: f64,
    /// NETCONF transactions in that time, of the router, or of the switch with the PhysicalNetwork.
    pub(super) transactions: u64,
    /// CPU seconds of each part in that time.
    pub(super) cpu: Cpu,
    /// Median time of one more network, in milliseconds.
    pub(super) one_change_ms: f64,
}

/// Where networks leave the fabric.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Vrf,
    PhysicalNetwork,
}

/// Measures this many networks of each kind, in a fresh sandbox each.
pub(super) async fn measure(args: &BenchArgs, dir: &Path, networks: usize) -> anyhow::Result<Gateway> {
    let on_physical_network = side(args, &dir.join("physical"), Way::PhysicalNetwork, networks).await?;
    let in_vrfs = side(args, &dir.join("vrfs"), Way::Vrf, networks).await?;
    Ok(Gateway { networks, vrfs: VRFS.min(networks), in_vrfs, on_physical_network })
}

async fn side(args: &BenchArgs, dir: &Path, way: Way, networks: usize) -> anyhow::Result<Side> {
    let mut topology = super::topology(args);
    let end = topology.physical_networks.iter().find(|network| network.name == PHYSICAL_NETWORK);
    let leaf = end.context("the fabric has no PhysicalNetwork")?.switch.clone();
    topology.add_router(ROUTER, "openconfig", &[&leaf]);
    let sandbox = Sandbox::start(super::options(dir, topology)?).await?;
    sandbox.admission_bound().await;
    let end = if way == Way::Vrf { ROUTER } else { &leaf };
    let side = measure_side(args, &sandbox, way, end, networks).await;
    sandbox.stop().await;
    side
}

async fn measure_side(
    args: &BenchArgs,
    sandbox: &Sandbox,
    way: Way,
    end: &str,
    networks: usize,
) -> anyhow::Result<Side> {
    let client = sandbox.client();
    apply_all(&client, "eno-bench", &load::base(&[EVERYWHERE])?).await?;
    let apis = GatewayApis::new(&client, way);
    let tracker = apis.tracker();
    let http = reqwest::Client::new();
    let info = sandbox.switch(end).with_context(|| format!("there is no {end}"))?;
    let transactions = switch::stats(&http, info).await?.transactions;
    let cpu = counters::cpu(sandbox)?;
    let started = Instant::now();
    each(0..networks, args.concurrency, |index| apis.create(index)).await?;
    let objects = apis.objects(networks);
    tracker.until("creating networks of a gateway", |seen| seen.ready.len() == objects).await?;
    let took = started.elapsed();
    let cpu = counters::cpu_since(counters::cpu(sandbox)?, &cpu);
    let transactions = switch::stats(&http, info).await?.transactions - transactions;
    eprintln!("  {networks} networks ready after {:.2} s", took.as_secs_f64());
    super::until_quiet(&client).await?;
    let mut samples = Vec::with_capacity(SAMPLES);
    for sample in 0..WARM_UP + SAMPLES {
        let took = one_more(&apis, &tracker, sample, objects).await?;
        if sample >= WARM_UP {
            samples.push(took.as_secs_f64() * 1000.0);
        }
    }
    let one_change_ms = percentile(&mut samples, 50);
    Ok(Side { create_to_ready: took.as_secs_f64(), transactions, cpu, one_change_ms })
}

/// The time of one more network, with those before it and these `objects` there.
async fn one_more(
    apis: &GatewayApis,
    tracker: &Tracker,
    sample: usize,
    objects: usize,
) -> anyhow::Result<Duration> {
    let started = Instant::now();
    apis.create(FIRST_SAMPLE + sample).await?;
    let objects = objects + (sample + 1) * apis.objects_of_a_network();
    tracker.until("one more network of a gateway", |seen| seen.ready.len() == objects).await?;
    Ok(started.elapsed())
}

/// The APIs of what the networks consist of.
struct GatewayApis {
    way: Way,
    pairs: Apis,
    subnets: Api<Subnet>,
    vrfs: Api<VRF>,
    routed: Api<VRFAttachment>,
}

impl GatewayApis {
    fn new(client: &kube::Client, way: Way) -> Self {
        Self {
            way,
            pairs: Apis::new(client),
            subnets: Api::all(client.clone()),
            vrfs: Api::all(client.clone()),
            routed: Api::all(client.clone()),
        }
    }

    fn tracker(&self) -> Tracker {
        let subnets = phases('n', self.subnets.clone(), |subnet| subnet.status.as_ref()?.phase);
        let mut kinds = load::phases_of_pairs(&self.pairs);
        kinds.push(subnets);
        if self.way == Way::Vrf {
            kinds.push(phases('v', self.vrfs.clone(), |vrf| vrf.status.as_ref()?.phase));
            kinds.push(phases('r', self.routed.clone(), |routed| routed.status.as_ref()?.phase));
        }
        Tracker::of(kinds)
    }

    /// The number of objects of a network, without its VRF.
    fn objects_of_a_network(&self) -> usize {
        if self.way == Way::Vrf { 4 } else { 3 }
    }

    /// The number of objects of this many networks.
    fn objects(&self, networks: usize) -> usize {
        let vrfs = if self.way == Way::Vrf { VRFS.min(networks) } else { 0 };
        networks * self.objects_of_a_network() + vrfs
    }

    /// Creates a network: what leads it out comes before what leads it to nodes.
    async fn create(&self, index: usize) -> anyhow::Result<()> {
        let params = PostParams::default();
        // Samples have the VLAN IDs above those of networks.
        let vlan = if index < FIRST_SAMPLE { index } else { SERVICES + index - FIRST_SAMPLE };
        if self.way == Way::Vrf && index < VRFS {
            self.vrfs.create(&params, &vrf(index)).await.context("creating a VRF")?;
        }
        self.subnets.create(&params, &subnet(index, vlan)).await.context("creating a Subnet")?;
        let mut service = load::service(index, vlan)?;
        service.spec.subnets = vec![name(index)];
        if self.way == Way::PhysicalNetwork {
            service.spec.physical_nw = vec![PHYSICAL_NETWORK.to_owned()];
        }
        self.pairs.services.create(&params, &service).await.context("creating an L2Service")?;
        if self.way == Way::Vrf {
            let routed = vrf_attachment(index, vlan);
            self.routed.create(&params, &routed).await.context("creating a VRFAttachment")?;
        }
        let attachment = load::attachment(index, index, EVERYWHERE.name);
        self.pairs
            .attachments
            .create(&params, &attachment)
            .await
            .context("creating an L2ServiceAttachment")?;
        Ok(())
    }
}

/// The `number`th VRF, with a distinguisher and a target of its own.
fn vrf(number: usize) -> VRF {
    let own = format!("65000:{}", number + 1);
    let spec = VRFSpec {
        devices: vec![VrfDevice { name: ROUTER.to_owned(), route_distinguisher: Some(own.clone()) }],
        device_name: None,
        import_targets: vec![own.clone()],
        export_targets: vec![own],
        services: None,
        callbacks: Callbacks::default(),
    };
    VRF::new(&vrf_name(number), spec)
}

fn vrf_name(network: usize) -> String {
    format!("{}-vrf", name(network % VRFS))
}

/// The first three bytes of the addresses of the `vlan`th VLAN.
fn prefix(vlan: usize) -> String {
    format!("10.{}.{}", vlan / 256, vlan % 256)
}

fn subnet(index: usize, vlan: usize) -> Subnet {
    let spec = SubnetSpec {
        ipam: Ipam::Whereabouts,
        address: format!("{}.0", prefix(vlan)),
        mask: 24,
        ip_type: IpType::V4,
        allocation_pool: Vec::new(),
        hot_plug_pool: Vec::new(),
        sticky: false,
        routes: Vec::new(),
        dns: None,
        callbacks: Callbacks::default(),
    };
    Subnet::new(&name(index), spec)
}

fn vrf_attachment(index: usize, vlan: usize) -> VRFAttachment {
    let addresses = vec![format!("{}.1/24", prefix(vlan))];
    let spec = VRFAttachmentSpec {
        vrf: vrf_name(index),
        l2_service: name(index),
        interfaces: vec![VrfInterface { device: ROUTER.to_owned(), addresses }],
        static_routes: Vec::new(),
        mtu: None,
        callbacks: Callbacks::default(),
    };
    VRFAttachment::new(&name(index), spec)
}
