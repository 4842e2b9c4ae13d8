//! Rotates keys and certificates of an installed operator. Each step is applied as `eno install` applies it, to the
//! parts that have to follow.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::api::DynamicObject;
use tokio::time::Instant;

use super::MANAGER;
use super::cluster;
use super::context::ClusterContext;
use super::installer::{InstallError, PARTS, VERSION, first_objects, kind, roll_out};
use super::render::{self, RenderError, Stage};
use super::requirements::{Record, Refusal, missing_permissions};
use super::rotation::{self, Step};
use super::secrets::{CA, Files, METRICS_CA, Secrets, complete, metrics_certificates, nats_certificate};
use super::values::Values;
use crate::apply::apply_all;

/// What is rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Rotated {
    /// The keys of NATS: those of the engine, the drivers and people, and those by which logins of agents are judged.
    NatsKeys,
    /// The certificate of NATS and, with the value nodeMetrics, those of the agents and of scrapers.
    Certificates,
}

impl fmt::Display for Rotated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NatsKeys => "nats-keys",
            Self::Certificates => "certificates",
        })
    }
}

/// A rotation did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// It can't begin. Nothing was changed.
    #[error("nothing was changed: {0}")]
    Refused(Refusal),
    /// It failed before anything was changed.
    #[error(transparent)]
    Prepare(#[from] InstallError),
    /// A part did not become ready in time.
    #[error(
        "{step}: {what} did not become ready in time{why}; when that is repaired, run eno rotate {rotated} again: it goes on"
    )]
    Late {
        /// What the step does.
        step: &'static str,
        /// What was waited for.
        what: String,
        /// The problem, if one is known.
        why: String,
        /// What is rotated.
        rotated: Rotated,
    },
    /// A step failed.
    #[error("{step}: {source}; run eno rotate {rotated} again: it goes on")]
    Step {
        /// What the step does.
        step: &'static str,
        /// The cause.
        source: InstallError,
        /// What is rotated.
        rotated: Rotated,
    },
}

/// What people have to do after a rotation, a sentence each.
pub type Notes = Vec<String>;

/// A rotation that may begin or go on, with the Secrets as far as they were changed.
struct Rotation<'a> {
    client: &'a Client,
    context: &'a ClusterContext,
    values: Values,
    secrets: Secrets,
    rotated: Rotated,
    deadline: Instant,
    report: &'a (dyn Fn(&str) + Send + Sync),
}

/// Rotates keys or certificates, or ends a rotation that was interrupted. `report` receives a line per step. The context
/// receives what is for the admin's disk only, before the cluster accepts it.
pub async fn rotate(
    client: &Client,
    rotated: Rotated,
    context: &ClusterContext,
    patience: Duration,
    report: &(dyn Fn(&str) + Send + Sync),
) -> Result<Notes, RotateError> {
    let deadline = Instant::now() + patience;
    let record = cluster::record(client).await.map_err(InstallError::from)?;
    let values = record.as_ref().map(|record| record.values.clone()).unwrap_or_default();
    let mut needed = first_objects(&values)?;
    needed.retain(|object| Stage::of(object) >= Stage::Configuration);
    let missing = cluster::missing_permissions(client, &needed).await.map_err(InstallError::from)?;
    let refused = missing_permissions(&missing).or_else(|| refusal(record.as_ref(), rotated));
    if let Some(refusal) = refused {
        return Err(RotateError::Refused(refusal));
    }
    let secrets = cluster::secrets(client).await.map_err(InstallError::from)?;
    let made = complete(&secrets, &values, Timestamp::now()).map_err(InstallError::from)?.made;
    if !made.is_empty() {
        let what = format!("the Secrets of the operator lack {}", made.join(", "));
        return Err(RotateError::Refused(Refusal { what, remedy: INSTALL_FIRST.to_owned() }));
    }
    let mut rotation = Rotation { client, context, values, secrets, rotated, deadline, report };
    match rotated {
        Rotated::NatsKeys => rotation.keys().await,
        Rotated::Certificates => rotation.certificates().await,
    }
}

/// Why an installation can't be rotated.
fn refusal(record: Option<&Record>, rotated: Rotated) -> Option<Refusal> {
    let refuse = |what: String, remedy: &str| Some(Refusal { what, remedy: remedy.to_owned() });
    let Some(record) = record else {
        return refuse("eno install has not installed ENO on this cluster".to_owned(), "run eno install");
    };
    if let Some(release) = &record.release {
        let what = format!("the Helm release {release} has installed ENO in this cluster");
        return refuse(what, HELM);
    }
    if record.version != VERSION {
        let what = format!("the cluster has ENO {}, and this program is {VERSION}", record.version);
        return refuse(what, &format!("use eno {}, or run eno install first", record.version));
    }
    if !record.is_complete {
        return refuse("the last eno install did not come to its end".to_owned(), INSTALL_FIRST);
    }
    if let Some(error) = &record.unread {
        return refuse(
            format!("this program refuses the values of the installation: {error}"),
            INSTALL_FIRST,
        );
    }
    let values = &record.values;
    if rotated == Rotated::Certificates && values.cert_manager && !values.node_metrics {
        return refuse("cert-manager made the certificate of NATS and renews it".to_owned(), CERT_MANAGER);
    }
    None
}

/// How to exchange keys and certificates of a release of Helm.
const HELM: &str = "the how-to \"Install with Helm\" says how to exchange its keys";
const INSTALL_FIRST: &str = "run eno install first";
/// How to renew a certificate of cert-manager.
const CERT_MANAGER: &str = "to renew it at once, run cmctl renew eno-nats-tls -n eno-system, or delete the Secret \
                            eno-system/eno-nats-tls; then run eno install";

const ADD_KEYS: &str = "adding the new keys to NATS";
const USE_KEYS: &str = "giving the new keys to the engine and the drivers";
const DROP_KEYS: &str = "dropping the old keys from NATS";
const TRUST_BOTH: &str = "trusting the new certificate authority beside the old one";
const SERVE: &str = "serving the new certificate of NATS";
const TRUST_NEW: &str = "trusting the new certificate authority alone";
const METRICS_BOTH: &str = "trusting the new certificate authority of node metrics beside the old one";
const METRICS_NEW: &str = "serving the new certificates of node metrics";

/// Clients of NATS with keys, in the order in which they follow: drivers need an engine.
const CLIENTS: [&[Stage]; 2] = [&[Stage::Engine], &[Stage::Drivers]];
const SERVERS: [&[Stage]; 1] = [&[Stage::Nats]];
const AGENTS: [&[Stage]; 1] = [&[Stage::Agents]];

impl Rotation<'_> {
    async fn keys(&mut self) -> Result<Notes, RotateError> {
        if rotation::keys_step(&self.secrets.nats) == Step::Add {
            self.add_keys().await.map_err(self.at(ADD_KEYS))?;
            (self.report)("NATS accepts the new keys beside the old ones");
            rotation::use_keys(&mut self.secrets.nats);
        }
        self.use_keys().await.map_err(self.at(USE_KEYS))?;
        (self.report)("the engine and the drivers use the new keys");
        rotation::use_login_keys(&mut self.secrets.nats);
        self.store().await.map_err(self.at(DROP_KEYS))?;
        rotation::drop_keys(&mut self.secrets.nats);
        self.drop_keys().await.map_err(self.at(DROP_KEYS))?;
        (self.report)("NATS refuses the old keys");

        let disk = self.context.read().map_err(InstallError::from).map_err(self.at(DROP_KEYS))?;
        let (here, elsewhere) = rotation::people_files(&self.secrets.nats, &disk);
        let directory = self.context.directory().display();
        let mut notes = Notes::new();
        if !here.is_empty() {
            let files = here.join(" and ");
            notes.push(format!(
                "NATS refuses the seeds that other admins have: give them {files} of {directory}"
            ));
        }
        if !elsewhere.is_empty() {
            let files = elsewhere.join(" and ");
            notes.push(format!(
                "another admin began this rotation: get {files} of him, and write them to {directory}"
            ));
        }
        Ok(notes)
    }

    async fn add_keys(&mut self) -> Result<(), InstallError> {
        let disk = self.context.read()?;
        let files = rotation::add_keys(&mut self.secrets.nats, &disk)?;
        // Seeds of people exist nowhere else, so they are on the disk before NATS accepts them.
        self.context.write(&files)?;
        self.store().await?;
        self.roll(&SERVERS).await
    }

    async fn use_keys(&mut self) -> Result<(), InstallError> {
        for (from, to) in rotation::final_names(&self.secrets.nats, &self.context.read()?) {
            self.context.rename(&from, &to)?;
        }
        self.store().await?;
        self.roll(&CLIENTS).await
    }

    /// The servers need the old keys of the Secret until they are replaced.
    async fn drop_keys(&mut self) -> Result<(), InstallError> {
        self.roll(&SERVERS).await?;
        self.store().await
    }

    async fn certificates(&mut self) -> Result<Notes, RotateError> {
        let mut notes = Notes::new();
        let waits_for_scrapers = self.values.node_metrics && rotation::is_rotating(&self.secrets.metrics);
        if self.values.cert_manager {
            notes.push(format!("cert-manager renews the certificate of NATS: {CERT_MANAGER}"));
        } else if rotation::is_rotating(&self.secrets.tls) || !waits_for_scrapers {
            self.nats_certificate().await?;
            let directory = self.context.directory().display();
            notes.push(format!("other admins need the new {CA} of {directory}: give it to them"));
        }
        if waits_for_scrapers {
            self.finish_metrics().await?;
        } else if self.values.node_metrics {
            self.begin_metrics().await.map_err(self.at(METRICS_BOTH))?;
            (self.report)("the agents trust the new certificate authority of scrapers beside the old one");
            let directory = self.context.directory().display();
            notes.push(format!(
                "give {METRICS_CA}, scraper.crt and scraper.key of {directory} to Prometheus, and then run eno rotate \
                 certificates again: the agents serve their new certificates from then on"
            ));
        }
        Ok(notes)
    }

    async fn nats_certificate(&mut self) -> Result<(), RotateError> {
        let mut step = rotation::certificate_step(&self.secrets.tls);
        if step == Step::Add {
            let now = Timestamp::now();
            let added = rotation::add_certificate(&mut self.secrets.tls, || nats_certificate(now));
            added.map_err(InstallError::from).map_err(self.at(TRUST_BOTH))?;
            self.follow(&PARTS).await.map_err(self.at(TRUST_BOTH))?;
            (self.report)("all parts trust the new certificate authority beside the old one");
            rotation::use_certificate(&mut self.secrets.tls);
            step = Step::Use;
        }
        if step == Step::Use {
            self.follow(&SERVERS).await.map_err(self.at(SERVE))?;
            (self.report)("NATS serves the new certificate");
            rotation::drop_authority(&mut self.secrets.tls);
        }
        self.follow(&PARTS).await.map_err(self.at(TRUST_NEW))?;
        rotation::end(&mut self.secrets.tls);
        self.store().await.map_err(self.at(TRUST_NEW))?;
        (self.report)("all parts trust the new certificate authority alone");
        Ok(())
    }

    /// Scrapers are outside the cluster: the old certificates stay in use until people have changed theirs.
    async fn begin_metrics(&mut self) -> Result<(), InstallError> {
        let (mut scraper, now) = (Files::default(), Timestamp::now());
        rotation::add_certificate(&mut self.secrets.metrics, || {
            let (data, files) = metrics_certificates(now)?;
            scraper = files;
            Ok(data)
        })?;
        scraper.0.extend(self.metrics_authorities());
        self.context.write(&scraper)?;
        self.follow(&AGENTS).await
    }

    async fn finish_metrics(&mut self) -> Result<(), RotateError> {
        rotation::use_certificate(&mut self.secrets.metrics);
        rotation::drop_authority(&mut self.secrets.metrics);
        self.follow(&AGENTS).await.map_err(self.at(METRICS_NEW))?;
        let authority = Files(self.metrics_authorities().into_iter().collect());
        self.context.write(&authority).map_err(InstallError::from).map_err(self.at(METRICS_NEW))?;
        rotation::end(&mut self.secrets.metrics);
        self.store().await.map_err(self.at(METRICS_NEW))?;
        (self.report)(
            "the agents serve their new certificates, and trust the new authority of scrapers alone",
        );
        Ok(())
    }

    fn metrics_authorities(&self) -> Option<(String, String)> {
        let text = |pem: &Vec<u8>| String::from_utf8_lossy(pem).into_owned();
        self.secrets.metrics.get(CA).map(|pem| (METRICS_CA.to_owned(), text(pem)))
    }

    /// Writes the Secrets, and has parts follow.
    async fn follow(&mut self, stages: &[&[Stage]]) -> Result<(), InstallError> {
        self.store().await?;
        self.roll(stages).await
    }

    /// Writes the Secrets, and the authority of NATS to the admin's disk.
    async fn store(&mut self) -> Result<(), InstallError> {
        let completed = complete(&self.secrets, &self.values, Timestamp::now())?;
        self.secrets = completed.secrets;
        self.context.write(&completed.files)?;
        let objects = self.objects(|object| kind(object) == "Secret")?;
        apply_all(self.client, MANAGER, &objects).await?;
        Ok(())
    }

    /// Has parts follow the Secrets, one group after the other.
    async fn roll(&self, stages: &[&[Stage]]) -> Result<(), InstallError> {
        let configuration =
            self.objects(|object| Stage::of(object) == Stage::Configuration && kind(object) != "Secret")?;
        apply_all(self.client, MANAGER, &configuration).await?;
        let objects = self.objects(|object| Stage::of(object) > Stage::Configuration)?;
        roll_out(self.client, &objects, stages, self.deadline, self.report).await
    }

    fn objects(&self, is_wanted: impl Fn(&DynamicObject) -> bool) -> Result<Vec<DynamicObject>, RenderError> {
        let objects = render::objects(&self.values, &self.secrets)?;
        Ok(objects.into_iter().filter(is_wanted).collect())
    }

    fn at(&self, step: &'static str) -> impl FnOnce(InstallError) -> RotateError + use<> {
        let rotated = self.rotated;
        move |error| match error {
            InstallError::Late { what, why } => RotateError::Late { step, what, why, rotated },
            source => RotateError::Step { step, source, rotated },
        }
    }
}
