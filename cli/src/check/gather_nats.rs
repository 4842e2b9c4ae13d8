//! Reads the facts from NATS.

use std::collections::BTreeMap;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::GetStreamErrorKind;
use eno_engine::callbacks::{dead_letters, undelivered};
use eno_engine::trace::STREAMS;
use eno_sbi::clock_skew;
use eno_sbi::nats::{Connection, Content, Selection, for_each_stored};
use eno_schemas::{DriverHello, Subject, SubjectKind, decode, subject};
use jiff::{SignedDuration, Timestamp};

use super::clocks::{DriverClock, judge_drivers};
use super::gather::Gather;
use super::nats::{
    self as judge, Backlog, Login, Replica, Stream, Streams, judge_backlog, judge_login, judge_space,
    judge_streams,
};
use super::objects::CallbackFacts;
use super::{Check, Fact, Name, Unread};
use crate::inspect::NatsClientArgs;
use crate::inspect::output::name;

/// What NATS says. All but the login are unread without a login.
pub(super) struct NatsFacts {
    pub(super) login: Login,
    server: Option<String>,
    streams: Streams,
    backlog: Fact<Backlog>,
    pub(super) hellos: Fact<Vec<DriverHello>>,
    clocks: Fact<Vec<DriverClock>>,
    /// `None`: without a login.
    pub(super) callbacks: Option<Fact<CallbackFacts>>,
}

impl NatsFacts {
    fn without(login: Login) -> Self {
        let unread = || Unread::Forbidden("no access to NATS".to_owned());
        Self {
            login,
            server: None,
            streams: Err(unread()),
            backlog: Err(unread()),
            hellos: Err(unread()),
            clocks: Err(unread()),
            callbacks: None,
        }
    }

    /// `now`: the time of the API server; `ahead`: by how much its clock is ahead of this machine's.
    pub(super) fn checks(&self, now: Timestamp, ahead: SignedDuration) -> Vec<Check> {
        let login = judge_login(&self.login, self.server.as_deref());
        let others = match self.login.obstacle() {
            Some(why) => [Name::Streams, Name::StreamSpace, Name::CommandBacklog, Name::DriverClocks]
                .map(|name| Check::skipped(name, "", why)),
            None => [
                judge_streams(&self.streams),
                judge_space(&self.streams),
                judge_backlog(&self.backlog, now),
                judge_drivers(&self.clocks, ahead),
            ],
        };
        [login].into_iter().chain(others).collect()
    }
}

/// Connects and reads everything.
pub(super) async fn nats(gather: &Gather, messages: &NatsClientArgs) -> NatsFacts {
    let connecting = async {
        messages.connect(&gather.client).await.map_err(|error| Unread::Failed(format!("{error:#}")))
    };
    let connection = match gather.within("connecting to NATS", connecting).await {
        Ok(Some(connection)) => connection,
        Ok(None) => return NatsFacts::without(Login::NotGiven),
        Err(Unread::Failed(message) | Unread::Forbidden(message)) => {
            return NatsFacts::without(Login::Refused(message));
        }
    };
    let info = connection.client.server_info();
    let (streams, backlog, hellos, callbacks) = tokio::join!(
        gather.within("reading the streams", streams(&connection)),
        gather.within("reading the last commands and reports", backlog(&connection)),
        gather.within("reading which drivers are alive", hellos(&connection)),
        gather.within("reading what is known of callbacks", callbacks(&connection)),
    );
    let (hellos, clocks) = match hellos {
        Ok((hellos, clocks)) => (Ok(hellos), Ok(clocks)),
        Err(unread) => (Err(unread.clone()), Err(unread)),
    };
    NatsFacts {
        login: Login::In(info.version),
        server: Some(format!("server {}", info.server_name)),
        streams,
        backlog,
        hellos,
        clocks,
        callbacks: Some(callbacks),
    }
}

fn failed(what: &str, error: impl Into<async_nats::Error>) -> Unread {
    Unread::Failed(format!("{what}: {}", error.into()))
}

async fn streams(connection: &Connection) -> Streams {
    let found = STREAMS.map(async |name| Ok((name, stream_fact(connection, name).await?)));
    futures::future::join_all(found).await.into_iter().collect()
}

async fn stream_fact(connection: &Connection, name: &str) -> Fact<Option<Stream>> {
    let found = match connection.jetstream.get_stream(name).await {
        Ok(found) => found,
        Err(error)
            if matches!(error.kind(), GetStreamErrorKind::JetStream(error)
                if error.error_code() == ErrorCode::STREAM_NOT_FOUND) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(failed(&format!("reading the stream {name}"), error)),
    };
    let info = found.cached_info();
    // A single server has no leader election.
    let cluster = info.cluster.as_ref().filter(|_| info.config.num_replicas > 1);
    let replica = |peer: &async_nats::jetstream::stream::PeerInfo| Replica {
        server: peer.name.clone(),
        is_current: peer.current,
        is_offline: peer.offline,
    };
    Ok(Some(Stream {
        name: name.to_owned(),
        wanted_replicas: info.config.num_replicas,
        has_leader: cluster.is_none_or(|cluster| cluster.leader.is_some()),
        replicas: cluster.map(|cluster| cluster.replicas.iter().map(replica).collect()).unwrap_or_default(),
        bytes: info.state.bytes,
        max_bytes: u64::try_from(info.config.max_bytes).ok().filter(|max| *max > 0),
    }))
}

async fn backlog(connection: &Connection) -> Fact<judge::Backlog> {
    let (commands, reports) = tokio::join!(
        times(connection, subject::COMMANDS, SubjectKind::Command),
        times(connection, subject::RESULTS, SubjectKind::Result)
    );
    Ok(Backlog { commands: commands?, reports: reports? })
}

/// The time of the last message of each target in a stream, without reading its content.
async fn times(
    connection: &Connection,
    stream: &str,
    kind: SubjectKind,
) -> Fact<BTreeMap<(String, String), Timestamp>> {
    let read = async {
        let of = kind.all();
        let selection = Selection { headers_only: true, ..Selection::last(stream, &of) };
        let mut times = BTreeMap::new();
        for_each_stored(&connection.jetstream, selection, |message| {
            if message.content == Content::Removed {
                return;
            }
            if let (Ok(Subject::Command(target) | Subject::Result(target)), Ok(at)) =
                (message.subject.parse(), Timestamp::from_nanosecond(message.stored_at))
            {
                times.insert((target.driver.into_owned(), target.target.into_owned()), at);
            }
        })
        .await?;
        Ok::<_, async_nats::Error>(times)
    };
    read.await.map_err(|error| failed(&format!("reading the stream {stream}"), error))
}

/// The drivers that are alive, and the clocks of those that tell their time.
async fn hellos(connection: &Connection) -> Fact<(Vec<DriverHello>, Vec<DriverClock>)> {
    let read = async {
        let (stream, of) =
            (subject::bucket_stream(subject::DRIVERS), subject::of_bucket(subject::DRIVERS, ">"));
        let (mut hellos, mut clocks) = (Vec::new(), Vec::new());
        for_each_stored(&connection.jetstream, Selection::last(&stream, &of), |message| {
            // A hello that breaks the schema is of another version.
            let Content::Payload(payload) = message.content else { return };
            let Ok(hello) = decode::<DriverHello>(&payload) else { return };
            let ahead = hello.at.as_deref().and_then(|at| clock_skew(at, message.age, Timestamp::now()));
            let process = format!("{} {}", hello.driver, hello.instance);
            clocks.extend(ahead.map(|ahead| DriverClock { process, ahead }));
            hellos.push(hello);
        })
        .await?;
        Ok::<_, async_nats::Error>((hellos, clocks))
    };
    read.await.map_err(|error| failed("reading which drivers are alive", error))
}

async fn callbacks(connection: &Connection) -> Fact<CallbackFacts> {
    let (undelivered, letters) = tokio::join!(undelivered(connection), dead_letters(connection));
    let undelivered = undelivered.map_err(|error| Unread::Failed(error.to_string()))?;
    let letters = letters.map_err(|error| Unread::Failed(error.to_string()))?;
    let undelivered =
        undelivered.into_iter().map(|one| (name(&one.kind, one.namespace.as_deref(), &one.name), one.error));
    Ok(CallbackFacts { undelivered: undelivered.collect(), dead_letters: letters.len() })
}
