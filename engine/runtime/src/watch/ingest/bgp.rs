//! BGPSessionGroups: AS numbers, timers and prefixes.

use std::collections::BTreeSet;

use eno_core::Name;
use eno_core::kinds::{BgpSessionGroupSpec, Family, Invalid};
use eno_nbi_crds as crds;
use eno_schemas::{Bfd, Speaker};
use ipnet::IpNet;

use super::optional_selector;

pub(super) fn session_group(source: &crds::BGPSessionGroupSpec) -> Result<BgpSessionGroupSpec, Invalid> {
    let families: BTreeSet<Family> = source.address_families.iter().copied().map(family).collect();
    if families.is_empty() {
        return Err(Invalid::new("AddressFamilies", "is empty; give IPv4, IPv6 or both"));
    }
    if source.keepalive_time == 0 || source.keepalive_time >= source.hold_time {
        let problem = format!(
            "{} is not less than the HoldTime of {} seconds; a third of it is usual",
            source.keepalive_time, source.hold_time
        );
        return Err(Invalid::new("KeepaliveTime", problem));
    }
    if source.bfd.is_some() && source.graceful_restart.is_some() {
        let problem = "can't go with BFD: BFD ends a session whose routes a graceful restart keeps; leave one of the two out";
        return Err(Invalid::new("GracefulRestart", problem));
    }
    if source.allow_pods && source.password.is_none() {
        let problem = "needs Password: a pod on the L2Service could open a session in place of a node";
        return Err(Invalid::new("AllowPods", problem));
    }
    let accept_prefixes = prefixes("AcceptPrefixes", &source.accept_prefixes)?;
    if accept_prefixes.is_empty() {
        return Err(Invalid::new(
            "AcceptPrefixes",
            "is empty; give what nodes may announce, such as 198.51.100.0/24",
        ));
    }
    let communities = source.communities.iter().enumerate().map(|(index, text)| community(index, text));
    if source.neighbours == crds::Neighbours::Prefix && source.password.is_none() {
        let problem = "Prefix needs Password: any host with an address of the Subnet could open a session";
        return Err(Invalid::new("Neighbours", problem));
    }
    let speaker = match source.speaker {
        crds::Speaker::None => None,
        crds::Speaker::MetalLB => Some(Speaker::MetalLB),
    };
    let speaker_secret = source.password.as_ref().and_then(|own| own.speaker_secret_name.as_deref());
    if source.password.is_some() && speaker_secret.is_some() != speaker.is_some() {
        let problem = "goes with a Speaker: give it where ENO configures the speaker, and only there";
        return Err(Invalid::new("Password.SpeakerSecretName", problem));
    }
    Ok(BgpSessionGroupSpec {
        vrf: source.vrf.as_str().into(),
        service: source.l2_service.as_str().into(),
        connection_point: source.connection_point.as_str().into(),
        node_selector: optional_selector("NodeSelector", source.node_selector.as_ref())?,
        local_asn: asn("LocalASN", source.local_asn)?,
        peer_asn: asn("PeerASN", source.peer_asn)?,
        address_families: families.into_iter().collect(),
        hold_time: source.hold_time,
        keepalive_time: source.keepalive_time,
        bfd: source.bfd.map(|own| Bfd {
            receive_interval: own.receive_interval,
            transmit_interval: own.transmit_interval,
            detect_multiplier: own.detect_multiplier,
        }),
        graceful_restart: source.graceful_restart.map(|own| own.restart_time),
        device_secret: source.password.as_ref().map(|own| own.device_secret_name.as_str().into()),
        speaker,
        speaker_secret: speaker_secret.map(Name::from),
        maximum_prefixes: source.maximum_prefixes,
        accept_prefixes,
        announce_prefixes: prefixes("AnnouncePrefixes", &source.announce_prefixes)?,
        communities: communities.collect::<Result<BTreeSet<_>, _>>()?.into_iter().collect(),
        by_prefix: source.neighbours == crds::Neighbours::Prefix,
        symmetric: source.return_path == crds::ReturnPath::Symmetric,
        allow_pods: source.allow_pods,
    })
}

fn family(source: crds::AddressFamily) -> Family {
    match source {
        crds::AddressFamily::V4 => Family::V4,
        crds::AddressFamily::V6 => Family::V6,
    }
}

fn asn(field: &str, number: i64) -> Result<u32, Invalid> {
    u32::try_from(number).ok().filter(|number| *number > 0).ok_or_else(|| {
        Invalid::new(field, format!("{number} is no AS number; give one from 1 to 4294967295"))
    })
}

/// Prefixes, ascending, each once.
fn prefixes(field: &str, source: &[String]) -> Result<Vec<IpNet>, Invalid> {
    let parse = |(index, text): (usize, &String)| {
        let prefix = text
            .parse::<IpNet>()
            .map_err(|_| format!("{text:?} is no prefix, such as 198.51.100.0/24 or 2001:db8::/48"));
        let prefix = prefix.and_then(|prefix| {
            if prefix == prefix.trunc() {
                Ok(prefix)
            } else {
                Err(format!("{prefix} has bits behind its length; write {}", prefix.trunc()))
            }
        });
        prefix.map_err(|problem| Invalid::new(format!("{field}[{index}]"), problem))
    };
    let all: BTreeSet<IpNet> = source.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
    Ok(all.into_iter().collect())
}

/// A community in its shortest form (RFC 1997).
fn community(index: usize, text: &str) -> Result<String, Invalid> {
    let number =
        |text: &str| text.parse::<u16>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let parsed =
        text.split_once(':').and_then(|(asn, value)| Some(format!("{}:{}", number(asn)?, number(value)?)));
    parsed.ok_or_else(|| {
        let problem =
            format!("{text:?} is not <ASN>:<number> with numbers of at most 65535, such as 65000:100");
        Invalid::new(format!("Communities[{index}]"), problem)
    })
}
