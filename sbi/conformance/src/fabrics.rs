//! Desired states and results of drivers of fabrics.

use std::collections::BTreeMap;
use std::path::Path;

use eno_sbi::{Driver, Reconciled, Work};
use eno_schemas::{
    Applied, Command, Desired, Device, FabricDesired, FabricPort, FabricVlan, Outcome, VlanId, VlanSet,
};

/// A desired state with these VLANs, and with ports by name and VLANs. The VLANs of ports are to exist, too.
pub fn desired(cluster: &str, device: Device, vlans: &str, ports: &[(&str, &str)]) -> FabricDesired {
    let ports: BTreeMap<&str, VlanSet> = ports.iter().map(|(name, vlans)| (*name, set(vlans))).collect();
    let vlans = ports.values().fold(set(vlans), |all, on| all.union(on));
    let vlan = |vid: VlanId| FabricVlan::new(vid, vec![format!("L2Service/s{vid}")]);
    FabricDesired {
        cluster: cluster.into(),
        cluster_uid: None,
        device,
        vrfs: Vec::new(),
        lookup: None,
        vlans: vlans.iter().map(vlan).collect(),
        ports: ports.into_iter().map(|(name, vlans)| FabricPort::new(name, vlans)).collect(),
    }
}

/// A set of VLANs.
pub fn set(text: &str) -> VlanSet {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A VLAN ID.
pub fn vid(id: u16) -> VlanId {
    VlanId::new(id).expect("a VLAN ID")
}

/// Writes a Secret as a mounted directory below `dir`.
pub fn write_secret<V: AsRef<[u8]>>(
    dir: &Path,
    name: &str,
    values: impl IntoIterator<Item = (&'static str, V)>,
) {
    std::fs::create_dir_all(dir.join(name)).expect("a directory");
    for (key, value) in values {
        std::fs::write(dir.join(name).join(key), value).expect("a file");
    }
}

/// Runs one reconcile.
pub async fn reconcile(driver: &impl Driver, target: &str, desired: FabricDesired) -> Reconciled {
    let command = Command::new(driver.identity().name, target, (1, 1), Desired::Fabric(desired));
    driver.reconcile(Work::alone(command)).await
}

/// The applied VLANs of a successful reconcile as text: all, and by port.
#[track_caller]
pub fn applied_vlans(reconciled: &Reconciled) -> (String, BTreeMap<String, String>) {
    assert_eq!(reconciled.outcome, Outcome::Applied, "{reconciled:?}");
    match &reconciled.applied {
        Some(Applied::Fabric { vlans, ports, .. }) => {
            (vlans.to_string(), ports.iter().map(|(name, vlans)| (name.clone(), vlans.to_string())).collect())
        }
        other => panic!("no fabric: {other:?}"),
    }
}

/// The applied VLANs by port.
#[track_caller]
pub fn applied(reconciled: &Reconciled) -> BTreeMap<String, String> {
    applied_vlans(reconciled).1
}

/// VLANs by port, to compare with [`applied`].
pub fn on(ports: &[(&str, &str)]) -> BTreeMap<String, String> {
    ports.iter().map(|(port, vlans)| ((*port).to_owned(), (*vlans).to_owned())).collect()
}

/// The reason of a failure, whether a retry may help, and whether the device is unreachable.
#[track_caller]
pub fn failed(reconciled: &Reconciled) -> (&str, bool, bool) {
    match &reconciled.outcome {
        Outcome::Failed(failure) => (&failure.reason, failure.retryable, failure.unreachable),
        other => panic!("it did not fail: {other:?}"),
    }
}
