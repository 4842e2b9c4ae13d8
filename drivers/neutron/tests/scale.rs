//! The time of 1,000 VLANs on four trunks, beside that of the same calls made by a plain client. `ENO_VLANS` is another
//! number of VLANs.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use eno_conformance::fabrics;
use eno_control_plane::openstack::{OpenStack, OpenStackClient, OpenStackOptions};
use eno_control_plane::parts::Parts;
use eno_device_secrets::SecretSource;
use eno_driver_neutron::driver::{NeutronDriver, Options};
use eno_driver_neutron::http::Limits;
use eno_schemas::{Device, FabricDesired, NeutronSettings, Outcome, VlanId, VlanSet};
use serde_json::{Value, json};

const PHYSICAL: &str = "datacentre";
const TRUNKS: [&str; 4] = ["t1", "t2", "t3", "t4"];
/// Networks or ports per request of the plain client, as the driver has it.
const PER_REQUEST: usize = 100;

async fn post(client: &OpenStackClient, kind: &str, attributes: Value) -> Value {
    client.post(&format!("/v2.0/{kind}s"), json!({ kind: attributes })).await.unwrap()[kind]["id"].clone()
}

/// The calls that make these VLANs, and nothing else.
async fn plain_calls(client: &OpenStackClient, vlans: &[u16]) -> [Duration; 3] {
    let mut times = [Duration::ZERO; 3];
    let mut networks = Vec::new();
    let start = Instant::now();
    for chunk in vlans.chunks(PER_REQUEST) {
        let network = |vlan: &u16| {
            json!({
                "name": format!("plain-{vlan}"), "port_security_enabled": false, "mtu": 1450,
                "provider:network_type": "vlan", "provider:physical_network": PHYSICAL,
                "provider:segmentation_id": vlan,
            })
        };
        let body = json!({ "networks": chunk.iter().map(network).collect::<Vec<_>>() });
        let made = client.post("/v2.0/networks", body).await.unwrap();
        networks.extend(made["networks"].as_array().unwrap().iter().map(|network| network["id"].clone()));
    }
    times[0] = start.elapsed();
    for name in TRUNKS {
        let start = Instant::now();
        let mut ports = Vec::new();
        for chunk in networks.chunks(PER_REQUEST) {
            let port = |id: &Value| json!({ "name": "plain", "network_id": id, "fixed_ips": [] });
            let body = json!({ "ports": chunk.iter().map(port).collect::<Vec<_>>() });
            let made = client.post("/v2.0/ports", body).await.unwrap();
            ports.extend(made["ports"].as_array().unwrap().iter().map(|port| port["id"].clone()));
        }
        times[1] += start.elapsed();
        let trunk =
            client.get(&format!("/v2.0/trunks?name={name}")).await.unwrap()["trunks"][0]["id"].clone();
        let sub_port = |(port, vlan): (&Value, &u16)| json!({ "port_id": port, "segmentation_type": "vlan", "segmentation_id": vlan });
        let start = Instant::now();
        let body = json!({ "sub_ports": ports.iter().zip(vlans).map(sub_port).collect::<Vec<_>>() });
        let path = format!("/v2.0/trunks/{}/add_subports", trunk.as_str().unwrap());
        client.put(&path, body).await.unwrap();
        times[2] += start.elapsed();
    }
    times
}

fn desired(keystone: &str, vlans: &VlanSet, more: Option<u16>) -> FabricDesired {
    let all = vlans.union(&more.map(fabrics::vid).into_iter().collect()).to_string();
    let vlans = vlans.to_string();
    let on = |name: &str| if name == "t1" || name == PHYSICAL { all.as_str() } else { vlans.as_str() };
    let ports: Vec<(&str, &str)> =
        TRUNKS.into_iter().chain([PHYSICAL]).map(|name| (name, on(name))).collect();
    let settings = NeutronSettings { physical_network: Some(PHYSICAL.into()), ..NeutronSettings::default() };
    let device = Device { credential: Some("vim".into()), neutron: Some(settings), ..Device::new(keystone) };
    fabrics::desired("c1", device, "", &ports)
}

async fn reconcile(driver: &NeutronDriver, desired: FabricDesired) -> Duration {
    let start = Instant::now();
    loop {
        let reconciled = fabrics::reconcile(driver, "vim1", desired.clone()).await;
        assert_eq!(reconciled.outcome, Outcome::Applied, "{reconciled:?}");
        if reconciled.rejected.is_empty() {
            return start.elapsed();
        }
        // The driver reports in between, and goes on.
        assert!(reconciled.wants_retry(), "{:?}", &reconciled.rejected[..1]);
    }
}

#[tokio::main]
async fn main() {
    let count: u16 = std::env::var("ENO_VLANS").map_or(1000, |text| text.parse().expect("a number of VLANs"));
    let dir = tempfile::tempdir().unwrap();
    let parts = Parts::from_env().unwrap();
    let cloud = OpenStack::start(OpenStackOptions::new(dir.path().join("cloud"), parts)).await.unwrap();
    let (client, admin) = (cloud.client(), cloud.admin());
    cloud.set_quota(&admin.project_id, &[("network", -1), ("port", -1)]).await.unwrap();
    let network = post(client, "network", json!({ "name": "management" })).await;
    for name in TRUNKS {
        let port =
            post(client, "port", json!({ "name": format!("{name}-nic"), "network_id": network })).await;
        post(client, "trunk", json!({ "name": name, "port_id": port })).await;
    }
    let secrets = dir.path().join("secrets");
    std::fs::create_dir_all(secrets.join("vim")).unwrap();
    for (key, value) in [
        ("username", &admin.user),
        ("password", &admin.password),
        ("user_domain_name", &admin.user_domain),
        ("project_name", &admin.project),
        ("project_domain_name", &admin.project_domain),
        ("devices", &cloud.auth_url().to_owned()),
    ] {
        std::fs::write(secrets.join("vim").join(key), value).unwrap();
    }
    let options = Options {
        secrets: SecretSource::Directory(secrets),
        limits: Limits { connect: Duration::from_secs(5), request: Duration::from_mins(5) },
        look_interval: Duration::from_mins(10),
        audit_interval: Duration::from_hours(1),
    };
    let driver = NeutronDriver::new(options);

    // Side by side: half with the plain client, half with the driver, in turn, so that both meet equally full tables.
    let all: Vec<u16> = (1..=2 * count).collect();
    let (mut plain, mut ours, mut own) = ([Duration::ZERO; 3], Duration::ZERO, BTreeSet::new());
    for part in all.chunks(usize::from(2 * count).div_ceil(2).max(2)) {
        let (first, second) = part.split_at(part.len() / 2);
        let times = plain_calls(client, first).await;
        plain.iter_mut().zip(times).for_each(|(all, one)| *all += one);
        own.extend(second.iter().map(|vlan| VlanId::new(*vlan).unwrap()));
        ours += reconcile(&driver, desired(cloud.auth_url(), &own.iter().copied().collect(), None)).await;
    }
    let own: VlanSet = own.into_iter().collect();
    let calls: Duration = plain.iter().sum();
    println!("{count} VLANs on {} trunks", TRUNKS.len());
    println!(
        "calls alone: {calls:.1?} (networks {:.1?}, ports {:.1?}, sub-ports {:.1?})",
        plain[0], plain[1], plain[2]
    );
    println!("driver: {ours:.1?}, ratio {:.2}", ours.as_secs_f64() / calls.as_secs_f64());
    let more = reconcile(&driver, desired(cloud.auth_url(), &own, Some(2 * count + 1))).await;
    println!("one VLAN more on one trunk: {more:.2?}");
    let audit = reconcile(&driver, desired(cloud.auth_url(), &own, Some(2 * count + 1))).await;
    println!("audit: {audit:.2?}");
    let less = reconcile(&driver, desired(cloud.auth_url(), &VlanSet::EMPTY, None)).await;
    println!("removal: {less:.1?}");
    cloud.stop().await;
}
