//! Waits until all is quiet, and reports what is not.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use eno_sbi::nats::Connection;
use reqwest::Url;

use super::check::ExpectedState;
use super::growth::Sample;
use super::inject::{DRIVERS, ENGINES, NATS};
use super::model::ExpectedObjects;
use super::observed::ObservedState;
use super::round::Soak;
use super::streams;
use crate::{engine_metrics, usage};

/// Maximum time until all is quiet.
const TIMEOUT: Duration = Duration::from_mins(4);
/// Interval of polls.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Time without writes that counts as quiet: longer than the engine delays informative statuses.
const QUIET_PERIOD: Duration = Duration::from_secs(2);
/// The gauge of undelivered callbacks.
const CALLBACKS: &str = "eno_engine_callbacks_pending";
/// Maximum violations in a message.
const MAX_SHOWN: usize = 40;

impl Soak<'_> {
    /// Waits until everything is as expected, no work is pending, and nothing was written for a while. Then it samples
    /// the processes. An error lists the violations.
    pub(super) async fn until_quiescent(&mut self, what: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut before, mut since) = (BTreeMap::new(), Instant::now());
        let expected = self.world.expected();
        let mut nats = None;
        loop {
            ticks.tick().await;
            let observed = ObservedState::read(self.sandbox, self.http).await?;
            let mut violations = self.violations(&expected, &observed);
            let leader = self.leader(&mut violations).await;
            if violations.is_empty() {
                violations.extend(self.stream_violations(&mut nats, &expected, &observed).await);
            }
            if !self.callback_log.violations().is_empty() {
                bail!(
                    "{what}: callbacks came in a wrong order:{}",
                    format_violations(self.callback_log.violations())
                );
            }
            if observed.versions != before || !violations.is_empty() {
                (before, since) = (observed.versions, Instant::now());
            } else if since.elapsed() >= QUIET_PERIOD {
                let objects = expected.services.len() + expected.attachments.len();
                self.tally.update(|tally| {
                    tally.quiet.push(since.duration_since(began));
                    tally.most_objects = tally.most_objects.max(objects);
                });
                return self.sample_processes(leader);
            }
            if began.elapsed() > TIMEOUT {
                if violations.is_empty() {
                    violations.push("objects or switches are written again and again".to_owned());
                }
                bail!(
                    "{what}: it is not quiet after {} s:{}",
                    TIMEOUT.as_secs(),
                    format_violations(&violations)
                );
            }
        }
    }

    fn violations(&mut self, expected: &ExpectedObjects, observed: &ObservedState) -> Vec<String> {
        let foreign = self.injector.foreign.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let wanted = ExpectedState {
            world: &self.world,
            expected,
            foreign: &foreign,
            fabric: self.fabric,
            objects: &self.objects,
            prefix: &self.prefix,
        };
        let mut violations = wanted.differences(observed);
        let ports_with_stale_vlan = wanted.ports_with_stale_vlan(observed);
        self.callback_log.record(self.receiver.take());
        self.tally.update(|tally| {
            tally.ports_with_stale_vlan = ports_with_stale_vlan;
            tally.posts = self.receiver.posts();
            tally.repeated = self.callback_log.repeated;
        });
        violations.extend(self.callback_log.missing(&ExpectedState::live_objects(observed)));
        violations
    }

    /// Violations in the streams of NATS. `nats`: the connection, once made.
    async fn stream_violations(
        &self,
        nats: &mut Option<Connection>,
        expected: &ExpectedObjects,
        observed: &ObservedState,
    ) -> Vec<String> {
        let all_gone = expected.services.is_empty() && expected.attachments.is_empty();
        let stream_states = async {
            let nats = match nats {
                Some(nats) => nats,
                None => nats.insert(crate::nats::connect_inspector(self.sandbox).await?),
            };
            streams::read(nats).await
        };
        match stream_states.await {
            Ok(kept) => {
                let attachments =
                    observed.objects.keys().filter(|key| key.starts_with("L2ServiceAttachment "));
                let (switches, most) = (observed.switches.len(), attachments.count());
                let targets = switches + observed.nads.len()..=switches + most;
                streams::differences(&kept, &targets, all_gone)
            }
            Err(error) => vec![format!("{error:#}")],
        }
    }

    /// The leading engine. Adds pending work and failed probes of the operator's processes to `violations`.
    async fn leader(&self, violations: &mut Vec<String>) -> Option<&'static str> {
        let mut leaders = Vec::new();
        for name in ENGINES.into_iter().chain(DRIVERS) {
            let Some(url) = self.sandbox.url(name) else { continue };
            let get =
                |path: &str| self.http.get(format!("{url}/{path}")).timeout(Duration::from_secs(5)).send();
            match get("readyz").await {
                Ok(answer) if answer.status().is_success() => {}
                Ok(answer) => violations.push(format!("{name} is not ready: {}", answer.status())),
                Err(_) => violations.push(format!("{name} does not answer")),
            }
            if !ENGINES.contains(&name) {
                continue;
            }
            let Ok(answer) = get("metrics").await else { continue };
            let metrics = answer.text().await.unwrap_or_default();
            if engine_metrics::value(&metrics, "eno_engine_leading") != Some(1.0) {
                continue;
            }
            leaders.push(name);
            let undelivered = engine_metrics::value(&metrics, CALLBACKS) != Some(0.0);
            let pending_work = engine_metrics::pending_work(&metrics);
            let pending_work = pending_work.or_else(|| undelivered.then(|| format!("{CALLBACKS} is not 0")));
            violations.extend(pending_work.map(|what| format!("of {name} {what}")));
        }
        if leaders.len() != 1 {
            violations.push(format!("{} engines lead", leaders.len()));
        }
        leaders.pop()
    }

    /// Samples the resource usage of processes.
    fn sample_processes(&self, leader: Option<&str>) -> anyhow::Result<()> {
        let api_server = Url::parse(self.sandbox.control_plane().server())?.socket_addrs(|| None)?;
        let api_server = *api_server.first().context("the API server has no address")?;
        for name in ENGINES.into_iter().chain(DRIVERS).chain([NATS]) {
            let Some(pid) = self.sandbox.control_plane().supervisor().pid(name) else {
                bail!("{name} does not run");
            };
            let sample = Sample {
                pid,
                leads: leader == Some(name),
                resident_kib: usage::resident_kib(pid)?,
                files: usage::open_files(pid, api_server)?,
            };
            self.tally.update(|tally| tally.growth.add(name, sample));
        }
        Ok(())
    }
}

fn format_violations(violations: &[String]) -> String {
    let more = violations.len().saturating_sub(MAX_SHOWN);
    let more = (more > 0).then(|| format!("and {more} more"));
    violations.iter().take(MAX_SHOWN).chain(&more).fold(String::new(), |text, one| text + "\n  " + one)
}
