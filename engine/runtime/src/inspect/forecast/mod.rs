//! Forecasts the effect of applying or deleting objects. It runs the core on the current state and then on the change,
//! with simulated drivers that carry out every command. Nothing is written.

mod cluster_state;
mod diff;
mod simulation;

use std::collections::BTreeMap;

use kube::api::DynamicObject;

pub use eno_core::{Key, Kind, Name};

pub(crate) use cluster_state::clean;
pub use cluster_state::{ClusterState, Part, PodInfo, ReadError, StoredError, Unlisted, key_of};
pub use diff::{
    Action, Evaluation, Forecast, NadForecast, NodeForecast, ObjectForecast, PodForecast, PortForecast,
    SwitchForecast,
};

use simulation::Simulation;

/// A change of one object.
#[derive(Clone, Debug)]
pub enum Change {
    /// Apply this object, in the form of the API server.
    Apply(Key, Box<DynamicObject>),
    /// Delete this object.
    Delete(Key),
}

/// Computes the effect of `changes`, all made at once. Pure.
pub fn forecast(cluster: &ClusterState, changes: &[Change]) -> Forecast {
    let mut simulation = Simulation::new(cluster);
    let before = simulation.run();
    let mut acts = BTreeMap::new();
    for change in changes {
        match change {
            Change::Apply(key, object) => {
                let existing = cluster.object(key);
                let same =
                    existing.is_some_and(|existing| existing.data.get("spec") == object.data.get("spec"));
                let act = match existing {
                    None => Action::Create,
                    Some(_) if same => Action::None,
                    Some(_) => Action::Change,
                };
                acts.insert(key.clone(), act);
                simulation.apply(key, object, cluster);
            }
            Change::Delete(key) => {
                acts.insert(
                    key.clone(),
                    if cluster.object(key).is_some() { Action::Delete } else { Action::None },
                );
                simulation.delete(key);
            }
        }
    }
    let after = simulation.run();
    let mut forecast = diff::compare(&before, &after, &acts, simulation.unreachable());
    forecast.objects.retain_mut(|object| diff::drop_uncertain(object, cluster, &simulation));
    forecast
}

/// The kind of this name: singular, plural or short name, in any case, as kubectl takes it.
pub fn kind(text: &str) -> Option<Kind> {
    let text = text.to_ascii_lowercase();
    Kind::ALL.into_iter().find(|kind| {
        let resource = crate::api::resource(*kind);
        let singular = kind.as_str().to_ascii_lowercase();
        singular == text || resource.plural == text || short_names(*kind).contains(&text.as_str())
    })
}

/// True for namespaced kinds.
pub fn is_namespaced(kind: Kind) -> bool {
    matches!(kind, Kind::L2ServiceAttachment | Kind::Bridge | Kind::PodNetworkConfig | Kind::PodConfig)
}

fn short_names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Route => &["rt"],
        Kind::Subnet => &["sn"],
        Kind::NodePool => &["np"],
        Kind::PhysicalNetwork => &["pnw"],
        Kind::FabricDevice => &["fd"],
        Kind::ConnectionPoint => &["cp"],
        Kind::L2Service => &["l2s"],
        Kind::L2BridgeDomain => &["l2bd"],
        Kind::L2ServiceAttachment => &["l2sa"],
        Kind::Bridge => &[],
        Kind::PodNetworkConfig => &["pnc"],
        Kind::PodConfig => &["podconf"],
    }
}
