//! The sample Deployments of PodConfigs.

use crate::kinds::Spec;
use crate::pods::Pods;
use crate::store::Store;
use crate::work::Work;
use crate::{Effect, Key, Name};

/// The sample Deployment of one PodConfig.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// The name that was requested last.
    pub requested: Option<Name>,
    /// Why the API server refuses its pods.
    pub refused: Option<Name>,
}

impl Pods {
    /// Requests the sample Deployment of a configuration, once.
    pub(crate) fn make_sample(&mut self, store: &Store, key: &Key, work: &mut Work) {
        if store.get(key).is_none_or(|record| !record.finalized || record.deleting) {
            return;
        }
        let requested = store.effective(key, Spec::pod_links).and_then(|spec| spec.sample.clone());
        if self.samples.get(key).and_then(|sample| sample.requested.as_ref()) == requested.as_ref() {
            return;
        }
        self.samples.insert(key.clone(), Sample { requested: requested.clone(), refused: None });
        if let Some(name) = requested {
            work.effects.push(Effect::SampleDeployment { owner: key.clone(), name });
        }
    }

    /// The API server refuses pods of a sample Deployment.
    pub(crate) fn refuse_sample(&mut self, store: &Store, key: &Key, message: Name, work: &mut Work) {
        if store.contains(key) {
            self.samples.entry(key.clone()).or_default().refused = Some(message);
            work.evaluate.insert(key.clone());
        }
    }
}
