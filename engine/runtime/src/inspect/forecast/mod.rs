//! Forecasts the effect of applying or deleting objects. It runs the core on the current state and then on the change,
//! with simulated drivers that carry out every command. Nothing is written.

mod cluster_state;
mod diff;
mod simulation;

use std::collections::BTreeMap;

use kube::api::DynamicObject;

pub use eno_core::{Key, Kind, Name};

pub use crate::api::{is_namespaced, kind};
pub(crate) use cluster_state::clean;
pub use cluster_state::{ClusterState, Part, PodInfo, ReadError, StoredError, Unlisted, key_of};
pub use diff::{
    Action, Evaluation, Forecast, NadForecast, NodeForecast, ObjectForecast, PodForecast, PortForecast,
    RoutedForecast, SpeakerForecast, SwitchForecast,
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
