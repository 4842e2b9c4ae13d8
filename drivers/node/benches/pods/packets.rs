//! What `AntiSpoof` costs: datagrams from one pod to another on the same bridge, with it and without.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use eno_schemas::NodeDesired;

use super::{Result, Runtime, desired, median, uid, whole};
use crate::Pods;

const DATAGRAMS: u32 = 100_000;
const ROUNDS: usize = 9;

/// The time of one datagram without and with `AntiSpoof`. Both take turns.
pub async fn measure(runtime: &Runtime, pods: &Pods<Runtime>) -> Result<[Duration; 2]> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (guarded, times) in [false, true].into_iter().zip(&mut times) {
            let wanted = both(guarded);
            whole(&pods.reconcile(&wanted).await, 2)?;
            let [sender, receiver] = [uid(0), uid(1)].map(|uid| runtime.0[&uid].clone());
            let target = format!("{}:4711", super::address(1).split('/').next().unwrap_or_default());
            let bound = target.clone();
            // Nobody reads: the kernel drops what its buffer can't hold.
            let listening = receiver.run(move || UdpSocket::bind(bound)).await??;
            let send = move || -> std::io::Result<Duration> {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                socket.connect(&target)?;
                // The neighbour is found before the time begins.
                socket.send(&[0; 64])?;
                let begun = Instant::now();
                for _ in 0..DATAGRAMS {
                    socket.send(&[0; 64])?;
                }
                Ok(begun.elapsed() / DATAGRAMS)
            };
            times.push(sender.run(send).await??);
            drop(listening);
        }
    }
    pods.reconcile(&desired(0..0)).await;
    Ok(times.map(median))
}

fn both(guarded: bool) -> NodeDesired {
    let mut wanted = desired(0..2);
    for (at, link) in wanted.pods.values_mut().flat_map(|pod| &mut pod.links).enumerate() {
        link.anti_spoof = guarded;
        link.mac = Some(format!("02:00:00:00:00:0{at}"));
    }
    wanted
}
