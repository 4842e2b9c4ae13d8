//! Keeps the state current: by watches of the API server and the streams of NATS.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use eno_engine::MessageChange;
use eno_engine::follow::{ClusterChange, WatchFailed, cluster_changes};
use eno_engine::follow_messages;
use eno_engine::forecast::{ClusterState, ReadError};
use eno_engine::observation::Observation;
use eno_engine::trace::Messages;
use eno_sbi::nats::NatsHealth;
use futures::StreamExt as _;
use kube::Client;
use tokio::sync::mpsc;
use tokio::time::{interval, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::state::{Changed, State};
use super::{App, Sources};
use crate::inspect::NatsClientArgs;
use crate::inspect::path::fabric_of;

/// Changes within this time are one event.
const BATCH: Duration = Duration::from_millis(50);
/// Delay of the computation of the desired state after changes of statuses only, which rarely change it.
const AFTER_STATUSES: Duration = Duration::from_secs(1);
/// Interval of checks whether the API server and NATS answer, while one of them does not.
const CHECK: Duration = Duration::from_secs(1);
/// Delay between attempts to connect to NATS.
const RECONNECT: Duration = Duration::from_secs(5);
/// Messages of NATS that wait to be taken.
const WAITING_MESSAGES: usize = 4_096;

/// Follows the cluster and NATS for as long as the process runs.
pub(super) async fn follow(app: App, client: Client, namespace: String, nats: NatsClientArgs) {
    let (to, mut messages) = mpsc::channel(WAITING_MESSAGES);
    let connecting = connect(app.clone(), client.clone(), nats, to);
    let applying = apply(app.clone(), client.clone(), namespace, &mut messages);
    tokio::join!(connecting, applying, watch_sources(app, client));
}

/// Connects to NATS, and follows its messages.
async fn connect(app: App, client: Client, nats: NatsClientArgs, to: mpsc::Sender<MessageChange>) {
    let connection = loop {
        match nats.connect(&client).await {
            Ok(Some(connection)) => break connection,
            Ok(None) => return,
            Err(error) => app.set_sources(|sources| sources.nats = Some(format!("{error:#}"))),
        }
        sleep(RECONNECT).await;
    };
    app.set_messages(Messages::Nats(Box::new(connection.clone())));
    app.set_sources(|sources| sources.nats = None);
    app.change(|state, changed| {
        state.begin_messages();
        changed.other = true;
    });
    app.outdated.notify_one();
    let health = NatsHealth::default();
    health.set(&connection);
    tokio::join!(follow_messages(&connection, &to), watch_nats(&app, &health));
}

/// Shows whether NATS answers.
async fn watch_nats(app: &App, health: &NatsHealth) {
    let mut tick = interval(CHECK);
    loop {
        tick.tick().await;
        let error = health.check().err();
        app.set_sources(|sources| sources.nats.clone_from(&error));
    }
}

/// Makes all changes, in batches, and computes the desired state after them, beside the next changes.
async fn apply(app: App, client: Client, namespace: String, messages: &mut mpsc::Receiver<MessageChange>) {
    let changes = cluster_changes(&client, &namespace, &app.state().world);
    let mut changes = pin!(changes);
    let mut messages_open = true;
    let mut schedule = Schedule::default();
    let mut running: Option<AbortOnDropHandle<bool>> = None;
    let mut reread: Option<Instant> = None;
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            change = changes.next() => match change {
                Some(change) => batch.push(Input::Cluster(change)),
                None => return,
            },
            message = messages.recv(), if messages_open => match message {
                Some(message) => batch.push(Input::Message(message)),
                None => messages_open = false,
            },
            // The commands of the engine can be read now.
            () = app.outdated.notified() => schedule.want(Duration::ZERO),
            () = until(schedule.due()), if running.is_none() => {
                schedule.begin();
                running = Some(AbortOnDropHandle::new(tokio::spawn(recompute(app.clone()))));
            }
            done = async { match &mut running { Some(one) => one.await, None => pending().await } } => {
                running = None;
                schedule.end();
                if !done.unwrap_or_default() {
                    schedule.want(AFTER_STATUSES);
                }
            }
            () = until(reread) => {
                reread = None;
                read_again(&app, &client, &namespace).await;
                schedule.want(Duration::ZERO);
            }
        }
        if batch.is_empty() {
            continue;
        }
        let end = sleep(BATCH);
        let mut end = pin!(end);
        loop {
            tokio::select! {
                () = &mut end => break,
                Some(change) = changes.next() => batch.push(Input::Cluster(change)),
                Some(message) = messages.recv(), if messages_open => batch.push(Input::Message(message)),
            }
        }
        app.change(|state, changed| {
            for input in batch {
                match input {
                    Input::Cluster(Ok(change)) => state.apply(change, changed),
                    Input::Cluster(Err(failed)) => {
                        if app.watch_failed(state, &failed) {
                            reread.get_or_insert_with(|| Instant::now() + CHECK);
                        }
                    }
                    Input::Message(message) => state.apply_message(message, changed),
                }
            }
            state.observe();
            if changed.desired {
                schedule.want(Duration::ZERO);
            } else if changed.statuses {
                schedule.want(AFTER_STATUSES);
            }
        });
    }
}

/// Waits until a time; `None`: forever.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}

/// When the desired state is computed: it takes half of the time at most.
#[derive(Default)]
struct Schedule {
    wanted: Option<Instant>,
    began: Option<Instant>,
    not_before: Option<Instant>,
}

impl Schedule {
    fn want(&mut self, after: Duration) {
        let at = Instant::now() + after;
        self.wanted = Some(self.wanted.map_or(at, |wanted| wanted.min(at)));
    }

    fn due(&self) -> Option<Instant> {
        let wanted = self.wanted?;
        Some(self.not_before.map_or(wanted, |not_before| wanted.max(not_before)))
    }

    fn begin(&mut self) {
        self.wanted = None;
        self.began = Some(Instant::now());
    }

    fn end(&mut self) {
        self.not_before = self.began.take().map(|began| Instant::now() + began.elapsed());
    }
}

/// A change, where it came from.
enum Input {
    Cluster(Result<ClusterChange, WatchFailed>),
    Message(MessageChange),
}

/// Computes the desired state. False: the engine's commands could not be read.
pub(super) async fn recompute(app: App) -> bool {
    // Copies, so that changes don't wait.
    let world = Arc::new(app.state().world.clone());
    let (computing, reports) = (Arc::clone(&world), app.clone());
    let computed = tokio::task::spawn_blocking(move || {
        let mut observation = Observation::new(&computing);
        // The first time takes long. The second time takes in what came meanwhile.
        for _ in 0..2 {
            let reports = reports.state().reports.clone();
            observation.catch_up(reports.iter());
        }
        let desired = observation.desired();
        (observation, desired)
    });
    let Ok((mut observation, mut desired)) = computed.await else { return true };
    let switches = std::mem::take(&mut desired.switches);
    match fabric_of(&world, switches, app.messages().as_ref()).await {
        Ok(fabric) => {
            app.change(|state, changed| {
                changed.other |= state.set_desired(&mut observation, desired, fabric);
            });
            true
        }
        Err(error) => {
            app.set_sources(|sources| sources.nats = Some(format!("{error:#}")));
            false
        }
    }
}

/// Reads everything again, since the rights of the viewer may have changed.
async fn read_again(app: &App, client: &Client, namespace: &str) {
    let world = match ClusterState::read(client, namespace).await {
        Ok(world) => world,
        Err(ReadError::Nothing(_)) => ClusterState::unknown(),
        // A watch fails, too, and says so.
        Err(ReadError::Listing { .. }) => return,
    };
    app.change(|state, changed| {
        state.set_world(world);
        changed.other = true;
    });
}

/// Checks after a failed watch when the API server answers again.
async fn watch_sources(app: App, client: Client) {
    let mut sources = app.sources.subscribe();
    loop {
        if sources.borrow_and_update().kubernetes.is_some() {
            sleep(CHECK).await;
            let answer = tokio::time::timeout(2 * CHECK, client.apiserver_version()).await;
            if matches!(answer, Ok(Ok(_))) {
                app.set_sources(|sources| sources.kubernetes = None);
            }
        } else if sources.changed().await.is_err() {
            return;
        }
    }
}

impl super::Shared {
    /// Notes that a watch failed. True: the viewer may have lost a right.
    fn watch_failed(&self, state: &State, failed: &WatchFailed) -> bool {
        if !failed.is_refused {
            self.set_sources(|sources| sources.kubernetes = Some(failed.to_string()));
            return false;
        }
        let name = failed.part.name();
        let is_left_out = state.world.left_out().iter().any(|left| left.to_string().starts_with(&name));
        let mut not_watched = self.not_watched.lock().unwrap_or_else(PoisonError::into_inner);
        !is_left_out && not_watched.insert(name)
    }

    /// Changes what can be reached.
    pub(super) fn set_sources(&self, change: impl FnOnce(&mut Sources)) {
        self.sources.send_if_modified(|sources| {
            let before = sources.clone();
            change(sources);
            *sources != before
        });
    }

    /// Changes the state, and sends the event of the change.
    pub(super) fn change(self: &Arc<Self>, change: impl FnOnce(&mut State, &mut Changed)) {
        let mut changed = Changed::default();
        let event = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            change(&mut state, &mut changed);
            if changed.is_empty() {
                return;
            }
            state.revision += 1;
            changed.event(state.revision)
        };
        // Without a browser nobody receives it.
        let _ = self.events.send(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computation_is_due_when_wanted_and_takes_half_of_the_time() {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.due(), None);
        schedule.want(AFTER_STATUSES);
        let later = schedule.due().expect("it is wanted");
        schedule.want(Duration::ZERO);
        assert!(schedule.due().is_some_and(|due| due < later), "the earlier wish counts");
        schedule.begin();
        assert_eq!(schedule.due(), None);
        schedule.began = Instant::now().checked_sub(10 * AFTER_STATUSES);
        schedule.end();
        schedule.want(Duration::ZERO);
        assert!(schedule.due().is_some_and(|due| due > Instant::now() + 9 * AFTER_STATUSES));
    }
}
