//! `eno ui`: pages on loopback, with the viewer's own kubeconfig and credentials of NATS.
//!
//! The server answers with what `eno status`, `trace`, `blame`, `plan` and `addresses` answer, from a state that watches
//! keep current. Nobody sees more than kubectl would show: of what NATS knows, only what is about objects that the
//! kubeconfig may list, and no texts of drivers unless it may list all kinds.

mod api;
mod assets;
mod guard;
mod live;
mod serve;
mod state;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use anyhow::Context as _;
use axum::extract::{Request, State as AppState};
use axum::middleware::{self, Next};
use axum::response::Response;
use eno_engine::forecast::ClusterState;
use eno_engine::trace::Messages;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::inspect::NatsClientArgs;
use crate::inspect::source::Source;
use guard::Guard;
use state::{State, StateEvent};

/// Events that a slow browser may lag behind before it reads everything again.
const EVENTS: usize = 256;

/// What the server can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Sources {
    /// Why the API server does not answer; absent: it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes: Option<String>,
    /// Why NATS does not answer; absent: it does, or is not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    nats: Option<String>,
}

/// What all requests share.
#[derive(Clone)]
struct App(Arc<Shared>);

impl Deref for App {
    type Target = Arc<Shared>;
    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

struct Shared {
    guard: Guard,
    source: Source,
    /// The URL of the API server, or the file.
    place: String,
    /// The namespace of objects that name none.
    namespace: String,
    /// The options that choose the same source in other commands.
    flags: Vec<String>,
    state: RwLock<State>,
    /// The messages of NATS; `None`: they are not known.
    messages: RwLock<Option<Messages>>,
    sources: watch::Sender<Sources>,
    /// What may be listed and not watched.
    not_watched: Mutex<BTreeSet<String>>,
    events: broadcast::Sender<StateEvent>,
    /// The desired state has to be computed again.
    outdated: Notify,
    /// The state was read once.
    is_loaded: watch::Sender<bool>,
}

impl Shared {
    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn messages(&self) -> Option<Messages> {
        self.messages.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_messages(&self, messages: Messages) {
        *self.messages.write().unwrap_or_else(PoisonError::into_inner) = Some(messages);
    }
}

/// What a console shows, and where it listens.
pub(crate) struct Options {
    /// The cluster or the dump.
    pub source: Source,
    /// Where it is, for people.
    pub place: String,
    /// The namespace of objects that name none.
    pub namespace: String,
    /// The options that choose the same source in other commands.
    pub flags: Vec<String>,
    /// The way to NATS.
    pub nats: NatsClientArgs,
    /// The port on 127.0.0.1; `None`: any that is free, on a loopback address of its own.
    pub port: Option<u16>,
}

/// A console that listens.
pub(crate) struct Console {
    app: App,
    listener: TcpListener,
    nats: NatsClientArgs,
    /// Where it listens.
    pub address: SocketAddr,
    /// The one-time token.
    pub token: String,
}

impl Console {
    /// Listens.
    pub(crate) async fn new(options: Options) -> anyhow::Result<Self> {
        let Options { source, place, namespace, flags, nats, port } = options;
        let listener = listen(port).await?;
        let address = listener.local_addr().context("reading the address of the port")?;
        let (guard, token) = Guard::new(address)?;
        let messages = match &source {
            Source::Dump(dump) => dump.messages(),
            Source::Live(_) => None,
        };
        let app = App(Arc::new(Shared {
            guard,
            source,
            place,
            namespace,
            flags,
            state: RwLock::new(State::new(ClusterState::default())),
            messages: RwLock::new(messages),
            sources: watch::Sender::default(),
            not_watched: Mutex::default(),
            events: broadcast::Sender::new(EVENTS),
            outdated: Notify::new(),
            is_loaded: watch::Sender::default(),
        }));
        Ok(Self { app, listener, nats, address, token })
    }

    /// Serves until `stop`. Answers wait until the state is read, which takes a while in a large cluster. Pages don't.
    pub(crate) async fn serve(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { app, listener, nats, .. } = self;
        let loaded = middleware::from_fn_with_state(app.clone(), wait_until_loaded);
        let checked = middleware::from_fn_with_state(app.clone(), guard::check);
        let router = api::router().layer(loaded).layer(checked).with_state(app.clone());
        let following = async {
            load(&app).await?;
            if let Source::Live(client) = &app.source {
                Box::pin(live::follow(app.clone(), client.clone(), app.namespace.clone(), nats)).await;
            }
            std::future::pending::<anyhow::Result<()>>().await
        };
        // Streams of events have no end, so a stop does not wait for them.
        tokio::select! {
            () = serve::pages(listener, router, serve::Limits::default()) => Ok(()),
            failed = following => failed,
            () = stop.cancelled() => Ok(()),
        }
    }
}

/// Reads the state for the first time.
async fn load(app: &App) -> anyhow::Result<()> {
    let mut state = State::new(app.source.cluster_state(&app.namespace).await?);
    if let Some(Messages::Stored(stored)) = &app.messages() {
        state.apply_stored(&**stored);
    }
    *app.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    live::recompute(app.clone()).await;
    app.is_loaded.send_replace(true);
    Ok(())
}

/// Holds what needs the state until it was read.
async fn wait_until_loaded(AppState(app): AppState<App>, request: Request, next: Next) -> Response {
    if request.uri().path().starts_with("/api/") {
        let mut is_loaded = app.is_loaded.subscribe();
        // The sender is in `app`, which is here.
        let _ = is_loaded.wait_for(|is_loaded| *is_loaded).await;
    }
    next.run(request).await
}

/// Listens on a loopback address. A browser sends a cookie to every port of an address, and so to servers of other users
/// of this machine: a random address has none.
async fn listen(port: Option<u16>) -> anyhow::Result<TcpListener> {
    if let Some(port) = port {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        return listener.with_context(|| format!("choose another --port: listening on 127.0.0.1:{port}"));
    }
    let own = Ipv4Addr::from_bits(0x7f00_0000 | (guard::random_bits()? & 0x00ff_ffff).clamp(2, 0x00ff_fffe));
    // Only Linux has all of 127.0.0.0/8 (RFC 1122, 3.2.1.3) without further setup.
    match TcpListener::bind((own, 0)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listening on 127.0.0.1"),
    }
}
