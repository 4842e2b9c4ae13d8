//! The demo: the example becomes VLANs, NetworkAttachmentDefinitions and callbacks, and is removed again.

mod checks;
mod gateway;
mod objects;
mod pods;
mod screen;

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{DeleteParams, DynamicObject};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use crate::manifests;
use crate::receiver::{Callback, Receiver};
use crate::sandbox::Sandbox;
use eno::apply::{api_of, apply_all, resource_of};
use objects::{Follower, State, is_of_api_group, is_of_fabric, set_callback, title, without_fields};
use screen::Screen;

/// The field manager of the example, in place of kubectl's.
const MANAGER: &str = "eno-demo";
/// Maximum time for the example to become ready, and to be removed. Each takes about a second.
const LIMIT: Duration = Duration::from_mins(1);

/// The demo in a running sandbox.
pub struct Demo<'a> {
    /// The sandbox of the demo.
    sandbox: &'a Sandbox,
    /// A client with all permissions.
    client: Client,
    /// A client of the switches' control API.
    http: reqwest::Client,
    /// The receiver of callbacks.
    receiver: Receiver,
    /// The output.
    screen: Screen,
    /// The objects of the example.
    objects: Vec<DynamicObject>,
}

impl<'a> Demo<'a> {
    /// Reads the example and starts the receiver of callbacks.
    pub async fn new(sandbox: &'a Sandbox) -> anyhow::Result<Self> {
        let receiver = Receiver::start().await.context("listening for callbacks")?;
        let mut objects = manifests::demo()?;
        for object in &mut objects {
            set_callback(object, receiver.url());
        }
        Ok(Self {
            sandbox,
            client: sandbox.client(),
            http: reqwest::Client::new(),
            receiver,
            screen: Screen::new(),
            objects,
        })
    }

    /// Applies the example, shows the outcome, and fails when it is not as expected.
    pub async fn apply(&self) -> anyhow::Result<()> {
        let screen = &self.screen;
        if self.has_nodes() {
            self.set_up_gateway()?;
        }
        screen.title(&format!("Applying examples/demo: {}", self.inventory()));
        screen::line(&format!("callbacks go to {}", self.receiver.url()));
        let started = Instant::now();
        let mut follower = Follower::new(&self.client, &self.objects)?;
        let applying = async {
            // Kinds are applied in the example's order, so that references exist.
            for kind in self.objects.chunk_by(|one, next| one.types == next.types) {
                apply_all(&self.client, MANAGER, kind).await?;
            }
            Ok::<_, anyhow::Error>(())
        };
        let everything_ready =
            |states: &BTreeMap<String, State>| states.values().all(|s| s.phase() == "ready");
        let (applied, ready) =
            tokio::join!(applying, self.follow(&mut follower, started, "ready", everything_ready));
        applied?;
        ready?;
        screen::line(&format!("everything is ready after {:.2} s", started.elapsed().as_secs_f64()));

        screen.title("What the switch ports carry now");
        let vlans = checks::vlan_ids(&self.objects);
        eno::outln!("{}", checks::ports(self.sandbox, &self.http, &vlans).await?);
        screen.title("NetworkAttachmentDefinitions");
        eno::outln!("{}", checks::nads(&self.client, &self.objects).await?);
        if self.has_nodes() {
            screen.title("Packets pass: the agents on the nodes have asked each other and the gateway");
            Box::pin(self.show_verdicts()).await?;
        }
        // Objects of the sandbox's fabric were ready before, so they have no callback.
        let (_, own) = self.split().await?;
        self.callbacks(&own, "ready", started).await
    }

    /// Deletes the example, shows its removal, and fails when anything remains. Objects of the fabric stay.
    pub async fn delete(&self) -> anyhow::Result<()> {
        self.screen.title("Deleting it all");
        let started = Instant::now();
        let (fabric, own) = self.split().await?;
        let returned: Vec<_> = fabric.iter().map(without_fields).collect();
        apply_all(&self.client, MANAGER, &returned).await?;
        let mut follower = Follower::new(&self.client, &own)?;
        follower.sync().await?;
        let deleting = stream::iter(&own)
            .map(|object| async {
                let api = api_of(&self.client, object)?;
                match api.delete(&object.name_any(), &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                    result => result.map(drop).with_context(|| format!("deleting {}", title(object))),
                }
            })
            .buffer_unordered(16)
            .try_collect::<()>();
        let everything_gone = |states: &BTreeMap<String, State>| states.values().all(|s| *s == State::Gone);
        let (deleted, gone) =
            tokio::join!(deleting, self.follow(&mut follower, started, "gone", everything_gone));
        deleted?;
        gone?;
        checks::nothing_left(self.sandbox, &self.client, &self.http, &own, LIMIT).await?;
        screen::line(&format!(
            "nothing is left after {:.2} s: no object, no NetworkAttachmentDefinition, no VLAN on any switch",
            started.elapsed().as_secs_f64()
        ));
        self.callbacks(&own, "deleted", started).await
    }

    /// The objects of the sandbox's fabric, and the example's own.
    async fn split(&self) -> anyhow::Result<(Vec<DynamicObject>, Vec<DynamicObject>)> {
        let mut split = (Vec::new(), Vec::new());
        for object in &self.objects {
            let stored = api_of(&self.client, object)?.get_opt(&object.name_any()).await;
            let stored = stored.with_context(|| format!("reading {}", title(object)))?;
            let list =
                if stored.is_some_and(|stored| is_of_fabric(&stored)) { &mut split.0 } else { &mut split.1 };
            list.push(object.clone());
        }
        Ok(split)
    }

    /// Shows the changes of the objects until `done` holds.
    async fn follow(
        &self,
        follower: &mut Follower,
        started: Instant,
        wanted: &str,
        done: impl Fn(&BTreeMap<String, State>) -> bool,
    ) -> anyhow::Result<()> {
        let following = async {
            while !done(follower.states()) {
                let change = follower.next().await?;
                self.screen.change(change.at.duration_since(started), &change.object, &change.state);
            }
            Ok::<_, watcher::Error>(())
        };
        if let Ok(result) = tokio::time::timeout(LIMIT, following).await {
            return result.context("watching the example");
        }
        let states = follower.states().iter().map(|(object, state)| screen::sentence(object, state));
        let list: Vec<_> = states.collect();
        bail!("not everything is {wanted} after {} s:\n  {}", LIMIT.as_secs(), list.join("\n  "))
    }

    /// Waits for a callback of this phase for every object, and shows the counts of callbacks.
    async fn callbacks(&self, objects: &[DynamicObject], phase: &str, since: Instant) -> anyhow::Result<()> {
        let missing_callbacks = |seen: &[Callback]| {
            let mut missing: Vec<_> =
                objects.iter().filter(|object| is_of_api_group(object)).map(title).collect();
            for callback in seen.iter().filter(|callback| callback.at >= since && callback.phase == phase) {
                missing.retain(|object| *object != callback.object);
            }
            missing
        };
        let received = self.receiver.until(|seen| missing_callbacks(seen).is_empty());
        if tokio::time::timeout(LIMIT, received).await.is_err() {
            let missing = self.receiver.read(missing_callbacks);
            bail!("no callback with phase {phase} came for {}", missing.join(", "));
        }
        self.screen.title("Callbacks that came");
        let callbacks = self.receiver.read(<[_]>::to_vec);
        let recent: Vec<_> = callbacks.iter().filter(|callback| callback.at >= since).collect();
        eno::outln!("{}", screen::callbacks(&recent, since));
        Ok(())
    }

    /// `10 L2Service, 3 L2ServiceAttachment, …`
    fn inventory(&self) -> String {
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for object in &self.objects {
            if let Ok(resource) = resource_of(object) {
                *kinds.entry(resource.kind).or_default() += 1;
            }
        }
        kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
    }
}

/// Runs a step of the demo until it ends, a stop is requested, or a process exits.
pub async fn until_stopped<T>(
    sandbox: &Sandbox,
    stop: &CancellationToken,
    step: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<Option<T>> {
    tokio::select! {
        result = step => result.map(Some),
        ended = sandbox.supervise() => bail!("{ended}"),
        () = stop.cancelled() => Ok(None),
    }
}
